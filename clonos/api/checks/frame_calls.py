"""Calls of pandas, Polars, numpy and Arrow in ``map_batches`` whose result depends on records of other batches.

A function of ``map_batches`` gets one batch at a time: a running sum begins anew with each, and a group ends with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Final

Advice = Callable[[str], str]
"""Function from a name to what to write in place of it, "" for nothing."""


def _advice(*rules: tuple[str, str]) -> Advice:
    compiled = [(re.compile(names), advice) for names, advice in rules]
    return lambda name: next((advice for names, advice in compiled if names.fullmatch(name)), "")


_RUNNING: Final = 'use key_by("k").aggregate(total=sum_("x"), emit=each(1)), with aggregates of clonos.agg'
_WINDOWS: Final = 'use key_by("k").window(Sliding("10min", every="1min")).aggregate(...)'
_GROUPS: Final = 'use key_by("k").aggregate(total=sum_("x")), for parts of time with window(...) in front of it'
_BEFORE: Final = 'use key_by("k").stateful_map(...), which has the value before as its state'
_RANKS: Final = 'use key_by("k").top_k(10, by="x"), or top_k of clonos.agg in windows'
_FIRST: Final = 'use deduplicate("k"), or distinct("k")'
_ORDER: Final = 'use key_by("k").top_k(10, by="x"), merge_ordered(other), or sort in windows'

METHODS: Final = _advice(
    (r"cum_?(?:sum|prod|max|min|count)|cumulative_eval|expanding", _RUNNING),
    (r"rolling(?:_\w+)?|group_by_dynamic|groupby_dynamic|resample", _WINDOWS),
    (r"groupby|group_by|pivot_table|value_counts", _GROUPS),
    (r"diff|pct_change|shift|ewm(?:_\w+)?|[fb]fill|(?:for|back)ward_fill|interpolate", _BEFORE),
    (r"rank|nlargest|nsmallest|bottom_k", _RANKS),
    (r"drop_duplicates|duplicated|is_duplicated|is_first_distinct", _FIRST),
    (r"sort_values|sort_index|sort_by", _ORDER),
)
"""Methods of frames and columns."""

METHODS_WITH_ARGUMENTS: Final = _advice((r"unique", _FIRST), (r"sort", _ORDER), (r"top_k", _RANKS))
"""Methods that other objects have too, without a positional argument."""

FUNCTIONS: Final = _advice(
    (r"numpy\.(?:cumsum|cumprod|nancumsum)|pyarrow\.compute\.cumulative_\w+", _RUNNING),
    (r"numpy\.(?:diff|ediff1d|roll)|pyarrow\.compute\.pairwise_diff(?:_checked)?", _BEFORE),
    (r"pyarrow\.compute\.rank(?:_\w+)?", _RANKS),
)

WITHIN_ROWS: Final = frozenset({"list", "arr", "str", "struct", "dt", "cat"})
"""Namespaces of columns whose methods handle the value of one row."""

_ALONG_ROWS: Final = re.compile(r"1|'columns'")


def advice_for_frames(call: ast.Call, full_name: str, is_of_known_object: bool) -> str:
    """Returns what to write in place of a call in a function of batches; an empty text if it handles each row alone.

    ``full_name``: module and name of what is called, "" if unknown. ``is_of_known_object``: it is a method of an object
    that is there before a batch comes, such as a module or a table of constants.
    """
    if any(each.arg == "axis" and _ALONG_ROWS.fullmatch(ast.unparse(each.value)) for each in call.keywords):
        return ""
    if is_of_known_object or not isinstance(call.func, ast.Attribute):
        return FUNCTIONS(full_name)
    holder = call.func.value
    if isinstance(holder, ast.Attribute) and holder.attr in WITHIN_ROWS:
        return ""
    return METHODS(call.func.attr) or (METHODS_WITH_ARGUMENTS(call.func.attr) if call.args or _has_by(call) else "")


def _has_by(call: ast.Call) -> bool:
    return any(each.arg in ("by", "subset", "keep") for each in call.keywords)
