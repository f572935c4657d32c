"""Classes of the values that columns of Arrow's types give in rows: whether they can be keys, and be equal.

Values are equal as keys if their class and they are: all widths of integers are int, and all texts str.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyarrow import types

CONVERT: Final = 'Convert one of them in front of the join, as in with_columns(id=col("id").cast(str)).'


def unequal(schemas: Sequence[Any], keys: Sequence[Sequence[str]]) -> str:
    """Returns which key columns of two sides are never equal; "" if they may be, or a column is missing."""
    for left, right in zip(*keys, strict=False):
        if schemas[0].names.count(left) != 1 or schemas[1].names.count(right) != 1:
            continue
        found = [schema.field(name).type for schema, name in zip(schemas, (left, right), strict=True)]
        classes = [key_class(each) for each in found]
        if all(classes) and classes[0] != classes[1]:
            return (
                f"joins the column {left!r} of the left stream, of the type {found[0]}, with {right!r} of the right"
                f" one, of the type {found[1]}, and values of these types are never equal"
            )
    return ""


def key_class(type_: Any) -> str:
    """Returns the class of the values that columns of a type have in rows, as keys; "" if they cannot be keys, or it is
    not known."""
    type_ = _plain(type_)
    if types.is_boolean(type_):
        return "bool"
    if types.is_integer(type_):
        return "int"
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "str"
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_):
        return "bytes"
    if types.is_date(type_):
        return "date"
    return "datetime" if types.is_timestamp(type_) and type_.tz is not None else ""


def refusal(name: str, type_: Any) -> str:
    """Returns what to use in place of a key column of a type that cannot be one; "" if it can."""
    type_ = _plain(type_)
    cast = f'with_columns({name}=col("{name}")' if name.isidentifier() else f'with_columns(col("{name}")'
    if types.is_floating(type_):
        return (
            "Floats that should be equal often differ in their last bit: round and cast them in front of the step, as"
            f" in {cast}.round(0).cast(int))."
        )
    if types.is_decimal(type_):
        return f"Decimals cannot be keys: cast them in front of the step, as in {cast}.cast(str))."
    if types.is_timestamp(type_) and type_.tz is None:
        return (
            f"Without a time zone it is no instant: cast it to UTC in front of the step, as in {cast}.cast(datetime))."
        )
    if types.is_timestamp(type_) and type_.unit == "ns":
        return f"A key has at most microseconds: cast it in front of the step, as in {cast}.cast(datetime))."
    if types.is_nested(type_) or types.is_time(type_) or types.is_duration(type_):
        return (
            "A key has columns of integers, texts, bytes, bools, dates or times with a time zone: compute one of them."
        )
    return ""


def may_be_number(type_: Any) -> bool:
    """Returns whether values of a type can be added, as far as that is known."""
    type_ = _plain(type_)
    others = (types.is_nested, types.is_date, types.is_time, types.is_timestamp)
    return key_class(type_) not in ("str", "bytes") and not any(is_other(type_) for is_other in others)


def _plain(type_: Any) -> Any:
    return type_.value_type if types.is_dictionary(type_) else type_
