"""Misuse of an expression as a value of Python, or as a frame of another library: errors that say what to write."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from clonos.core.model.missing_names import MethodMissing, attribute_missing
from clonos.expressions.expression_errors import ExpressionMisused

AGGREGATES: Final = {
    "sum": "sum_",
    "min": "min_",
    "max": "max_",
    "std": "stddev",
    "var": "variance",
    "n_unique": "count_distinct",
    **{name: name for name in ("mean", "count", "first", "last", "quantile", "top_k")},
    "len": "count",
    "median": "quantile",
    "unique": "distinct",
    "nunique": "count_distinct",
    "avg": "mean",
}
"""Methods of other libraries, and the aggregate of ``clonos.agg`` that does the same for a stream."""

OF_ALL_ROWS: Final = (
    *("sort", "sort_by", "rank", "cum_sum", "cum_count", "cum_max", "shift", "diff", "over", "rolling_mean"),
    *("head", "tail", "limit", "filter", "any", "all", "implode", "forward_fill", "interpolate"),
)
"""Methods of Polars whose result for a record depends on other records."""

CALLS: Final = "Use the step map: it calls a function with each record."

STRUCT: Final = 'Write .struct.field("...") for a field, or .str.slice(offset, length) for a part of a text.'

HINTS: Final = {
    **dict.fromkeys(
        OF_ALL_ROWS,
        "An expression computes each record alone; aggregate, top_k and windows are steps of a stream.",
    ),
    **dict.fromkeys(("map_elements", "map", "apply", "transform"), CALLS),
    "map_batches": "Use the step map_batches of the stream.",
    "isnull": "Use is_null().",
    "isna": "Use is_null().",
    "isin": "Use is_in([...]).",
    "astype": "Use cast(type).",
    "between": "Use is_between(lower, upper).",
    "fillna": "Use fill_null(value).",
    "when": "Begin with when(condition).then(value).otherwise(value).",
    "not_": "Write ~ in front of the condition.",
    "sqrt": "Write ** 0.5.",
    "pow": "Write **.",
    **dict.fromkeys(("len_chars", "length"), "Use .str.len_chars()."),
    **dict.fromkeys(("lower", "to_lowercase"), "Use .str.to_lowercase()."),
    **dict.fromkeys(("upper", "to_uppercase"), "Use .str.to_uppercase()."),
    **dict.fromkeys(("startswith", "starts_with"), 'Use .str.starts_with("...").'),
    **dict.fromkeys(("endswith", "ends_with"), 'Use .str.ends_with("...").'),
    **dict.fromkeys(("contains", "like"), 'Use .str.contains("...").'),
    **dict.fromkeys(("replace", "replace_all", "extract"), "Use the methods after .str."),
    "split": "Columns of lists are not supported: use .str.extract(pattern, group), or the step map_batches.",
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "second", "truncate"), "Use the methods after .dt."),
    "field": "Use .struct.field(name).",
}

INTERNAL: Final = frozenset({"columns", "function", "inputs", "made_into", "option", "options", "output_name"})


def method_missing(expression: Any, attribute: str) -> AttributeError:
    """Returns the error for a method that expressions do not have."""
    hints = HINTS
    if attribute in AGGREGATES:
        is_column = expression.function == "column"
        of = expression.output_name() if is_column else "column"
        call = f"{AGGREGATES[attribute]}({'' if AGGREGATES[attribute] == 'count' else repr(of)})"
        if AGGREGATES[attribute] in ("quantile", "top_k"):
            call = f"quantile({of!r}, 0.5)" if AGGREGATES[attribute] == "quantile" else f"top_k(3, {of!r})"
        first = "" if is_column else " Compute the column in with_columns first."
        hints = {
            attribute: "An expression computes each record alone. An aggregate is a step of the stream, after key_by"
            f" or window for each key or window: .aggregate(result={call}), from clonos.agg.{first}"
        }
    missing = attribute_missing(type(expression), attribute, hints, INTERNAL)
    return MethodMissing("an expression", attribute, missing.hint) if isinstance(missing, MethodMissing) else missing


class NoValue:
    """Base of expressions: what Python would do with a value is refused."""

    __slots__ = ()

    def __bool__(self) -> bool:
        raise ExpressionMisused(
            repr(self),
            "has no truth value, since it stands for a whole column",
            "Combine conditions with & | ~ in place of and, or, not and chained comparisons, each in parentheses:"
            ' (col("x") > 1) & (col("x") < 5); in place of if: when(...).then(...).otherwise(...); in place of in:'
            " is_in([...]); in place of min and max: min_horizontal(...), max_horizontal(...).",
        )

    def __contains__(self, item: object) -> bool:
        raise ExpressionMisused(
            f"{item!r:.80} in {self!r}",
            "is no expression",
            'Write .is_in([...]) for membership, or .str.contains("...", literal=True) for a part of a text.',
        )

    def __iter__(self) -> Any:
        raise ExpressionMisused(repr(self), "cannot be iterated over", "It stands for a whole column.")

    def __getitem__(self, item: object) -> Any:
        raise ExpressionMisused(f"{self!r}[{item!r:.80}]", "is no expression", STRUCT)

    def __len__(self) -> int:
        self._refuse("len", "Write .str.len_chars() for the length of each text, or count() of clonos.agg for records.")

    def __int__(self) -> int:
        self._refuse("int", "Write .cast(int).")

    def __float__(self) -> float:
        self._refuse(
            "float", "Write .cast(float). Functions of math take no columns: write ** 0.5 for a root, or a map."
        )

    def _refuse(self, function: str, advice: str) -> NoReturn:
        raise ExpressionMisused(
            f"{function}({self!r})", "needs one value, and an expression stands for a whole column", advice
        )
