"""Functions of texts, and the joining of texts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import pyarrow
import pyarrow.compute as compute
from pyarrow import types

from clonos.expressions.expression import Expr
from clonos.expressions.expression_errors import CannotBind
from clonos.expressions.functions.binder import Binder, BoundValue, Kernel
from clonos.expressions.functions.casts import as_text
from clonos.expressions.functions.constants import arrow_scalar
from clonos.expressions.functions.value_types import is_text, kind_name, settled, unified
from clonos.expressions.patterns import replacement_text, with_named_group

LENGTHS: Final[dict[str, Kernel]] = {"str.len_chars": compute.utf8_length, "str.len_bytes": compute.binary_length}

PLAIN: Final[dict[str, Kernel]] = {"str.to_lowercase": compute.utf8_lower, "str.to_uppercase": compute.utf8_upper}

TESTS: Final[dict[str, Kernel]] = {"str.starts_with": compute.starts_with, "str.ends_with": compute.ends_with}


def text(binder: Binder, value: BoundValue) -> BoundValue:
    """Returns a text.

    Raises: CannotBind: the value is something else.
    """
    if types.is_null(value.type):
        return binder.constant(None, pyarrow.string())
    if not is_text(value.type):
        raise CannotBind("", f"it needs a text and gets {kind_name(value.type)}; cast it with cast(str)")
    return settled(binder, value)


def length(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds len_chars and len_bytes."""
    found = binder.call(node.function, LENGTHS[node.function], text(binder, inputs[0]))
    return binder.cast(found, pyarrow.uint32())


def plain(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds to_lowercase and to_uppercase."""
    value = text(binder, inputs[0])
    return binder.call(node.function, PLAIN[node.function], value, type_=value.type)


def test(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds starts_with and ends_with."""
    kernel, pattern = TESTS[node.function], node.option("text")
    return _called(binder, node, inputs, lambda column: kernel(column, pattern=pattern), pyarrow.bool_())


def contains(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds contains."""
    pattern = node.option("pattern")
    kernel = compute.match_substring if node.option("literal") else compute.match_substring_regex
    return _called(binder, node, inputs, lambda column: kernel(column, pattern=pattern), pyarrow.bool_())


def replace(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds replace and replace_all."""
    pattern, value = node.option("pattern"), node.option("value")
    count = 1 if node.function == "str.replace" else None
    kernel = compute.replace_substring
    if not node.option("literal"):
        kernel, value = compute.replace_substring_regex, replacement_text(node.function, pattern, value)
    return _called(
        binder,
        node,
        inputs,
        lambda column: kernel(column, pattern=pattern, replacement=value, max_replacements=count),
    )


def part(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds slice."""
    offset, count = node.option("offset"), node.option("length")
    stop = None if count is None or offset < 0 <= offset + count else offset + count
    if count == 0:
        offset = stop = 0
    return _called(binder, node, inputs, lambda column: compute.utf8_slice_codeunits(column, start=offset, stop=stop))


def strip(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds strip_chars."""
    characters = node.option("characters")
    if characters is None:
        return _called(binder, node, inputs, compute.utf8_trim_whitespace)
    return _called(binder, node, inputs, lambda column: compute.utf8_trim(column, characters=characters))


def extract(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds extract."""
    pattern = with_named_group(node.option("pattern"), node.option("group", 1))
    return _called(
        binder, node, inputs, lambda column: compute.struct_field(compute.extract_regex(column, pattern=pattern), [0])
    )


def _called(
    binder: Binder, node: Expr, inputs: list[BoundValue], kernel: Callable[[Any], Any], type_: Any | None = None
) -> BoundValue:
    """Binds a kernel of one text, whose arguments are those of the node; checks its pattern.

    ``type_``: the type of the result; None for that of the text.
    """
    value = text(binder, inputs[0])
    try:
        kernel(arrow_scalar("", value.type))
    except pyarrow.ArrowInvalid as error:
        raise CannotBind("", f"the pattern is no regular expression of RE2: {_reason(error)}") from None
    return binder.call(node.function, kernel, value, type_=type_ or value.type, options=node.options)


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0].removeprefix("Invalid regular expression: ")


def concat_str(binder: Binder, node: Expr, inputs: list[BoundValue]) -> BoundValue:
    """Binds concat_str."""
    values = unified(binder, [as_text(binder, settled(binder, each)) for each in inputs])
    separator = arrow_scalar(node.option("separator", ""), values[0].type)

    def joined(*columns: Any) -> Any:
        if not node.option("ignore_nulls"):
            return compute.binary_join_element_wise(*columns, separator, null_handling="emit_null")
        # Arrow leaves out a row whose texts are all null, so the first one becomes empty there.
        is_empty = reduce(compute.and_, map(compute.is_null, columns))
        first = compute.if_else(is_empty, arrow_scalar("", separator.type), columns[0])
        return compute.binary_join_element_wise(first, *columns[1:], separator, null_handling="skip")

    return binder.call("concat_str", joined, *values, type_=values[0].type, options=node.options)


FUNCTIONS: Final = {
    **dict.fromkeys(LENGTHS, length),
    **dict.fromkeys(PLAIN, plain),
    **dict.fromkeys(TESTS, test),
    "str.contains": contains,
    "str.replace": replace,
    "str.replace_all": replace,
    "str.slice": part,
    "str.strip_chars": strip,
    "str.extract": extract,
    "concat_str": concat_str,
}
