"""Arrays of Arrow from values of Python, exactly: what a type cannot hold is refused, never cut, rounded or converted.

The one conversion of rows for all sinks of columns. It works on buffers: ``pyarrow.array`` of a list cuts a datetime to
a date and 1.5 to 1, and imports pandas, which takes seconds.

A column holds values of one kind, and None. Integers count as floats and as decimals that equal them. With a given type
a float may be rounded to the nearest float of fewer bits, because that type was asked for.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from itertools import accumulate, chain
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy
import pyarrow

_types = pyarrow.types
_EPOCH: Final = dt.datetime(1970, 1, 1)
_FIRST: Final = dt.datetime.min - _EPOCH
_LAST: Final = dt.datetime.max - _EPOCH
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_DECIMAL128_DIGITS: Final = 38
_DECIMAL256_DIGITS: Final = 76
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Inexact(ValueError):
    """A value that a type of Arrow cannot hold exactly. ``index``: its place in the column."""

    def __init__(self, index: int, value: Any, reason: str) -> None:
        super().__init__(index, value, reason)
        self.index = index
        self.value = value
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


def exact_array(values: Sequence[Any], type_: Any = None) -> Any:
    """Returns a ``pyarrow.Array`` of values, of the given type or of their own.

    Raises: Inexact: the type does not hold a value, or the values have no common type.
    """
    if type_ is None:
        type_ = inferred_type(values)
    if (build := _builder_of(type_)) is None:
        return _by_arrow(values, type_)
    return build(values, type_)


# ------------------------------------------------------------------------------------------------ types


def inferred_type(values: Sequence[Any]) -> Any:
    """Returns the type of Arrow that holds values exactly.

    Raises: Inexact: there is none; it names the first value that does not go with those before it.
    """
    kinds = list(dict.fromkeys(map(type, values)))
    only = [kind for kind in kinds if kind is not type(None)]
    if len(only) == 1 and only[0] in _SIMPLE:
        return _SIMPLE[only[0]]  # the most frequent case
    found, seen = pyarrow.null(), None
    for kind in kinds:
        if kind is type(None):
            continue
        part = [value for value in values if type(value) is kind]
        index = next(index for index, value in enumerate(values) if type(value) is kind)
        try:
            found = common_type(found, _type_of_kind(kind, part))
        except Inexact as error:
            place = [index for index, value in enumerate(values) if type(value) is kind][error.index]
            raise Inexact(place, error.value, error.reason) from None
        except TypeError as error:
            reason = (
                f"{_named(part[0])} does not go with {_named(seen)} in one column" if seen is not None else str(error)
            )
            raise Inexact(index, part[0], reason) from None
        seen = part[0]
    return found


def common_type(one: Any, other: Any) -> Any:
    """Returns the type that holds the values of both types.

    An integer beyond 2**53 among floats is found when it is converted. Raises: TypeError: there is none.
    """
    if one == other or _types.is_null(other):
        return one
    if _types.is_null(one):
        return other
    if {one, other} == {pyarrow.int64(), pyarrow.float64()}:
        return pyarrow.float64()
    if _types.is_timestamp(one) and _types.is_timestamp(other) and (one.tz is None) == (other.tz is None):
        return pyarrow.timestamp(_finer(one, other), one.tz)
    if _types.is_duration(one) and _types.is_duration(other):
        return pyarrow.duration(_finer(one, other))
    decimals = [_as_decimal(each) for each in (one, other)]
    if any(map(_types.is_decimal, (one, other))) and None not in decimals:
        scale = max(each[1] for each in decimals)
        return _decimal_type(max(each[0] - each[1] for each in decimals) + scale, scale)
    if _types.is_list(one) and _types.is_list(other):
        return pyarrow.list_(common_type(one.value_type, other.value_type))
    if _types.is_struct(one) and _types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            fields[field.name] = common_type(fields[field.name], field.type) if field.name in fields else field.type
        return pyarrow.struct(list(fields.items()))
    raise TypeError(f"{one} and {other} have no common type")


def common_schema(schemas: Iterable[Any]) -> Any:
    """Returns the schema with the columns of all schemas, each nullable and of the common type.

    Raises: TypeError: a column has none; it begins with the name of the column.
    """
    fields: dict[str, Any] = {}
    for schema in schemas:
        for field in schema:
            try:
                fields[field.name] = common_type(fields.get(field.name, pyarrow.null()), field.type)
            except TypeError as error:
                raise TypeError(f"{field.name}: {error}") from None
    return pyarrow.schema(list(fields.items()))


def _type_of_kind(kind: type, values: list[Any]) -> Any:
    """Returns the type for values of one kind that are not None."""
    if (simple := _SIMPLE.get(kind)) is not None:
        return simple
    if kind is Decimal:
        return _type_of_decimals(values)
    if issubclass(kind, dt.datetime):
        return _type_of_instants(values)
    if issubclass(kind, dt.timedelta):
        return pyarrow.duration("ns" if any(getattr(value, "nanoseconds", 0) for value in values) else "us")
    if kind is list:
        return pyarrow.list_(_inner_type(values, lambda value: value))
    if kind is dict:
        return _type_of_dicts(values)
    raise TypeError(f"Arrow has no type for {_named(values[0])}")


_SIMPLE: Final[dict[type, Any]] = {
    int: pyarrow.int64(),
    float: pyarrow.float64(),
    bool: pyarrow.bool_(),
    str: pyarrow.string(),
    bytes: pyarrow.binary(),
    dt.date: pyarrow.date32(),
    dt.time: pyarrow.time64("us"),
    dt.timedelta: pyarrow.duration("us"),
}


def _inner_type(values: list[Any], items: Callable[[Any], Sequence[Any]]) -> Any:
    """Returns the type of what the values contain; an error names the outer value."""
    inner = [items(value) for value in values]
    try:
        return inferred_type(list(chain.from_iterable(inner)))
    except Inexact as error:
        raise _outer(error, values, list(map(len, inner))) from None


def _outer(error: Inexact, values: Sequence[Any], lengths: Sequence[int]) -> Inexact:
    """Returns the error of an inner value as that of the value that contains it."""
    ends = accumulate(lengths)
    index = next(place for place, end in enumerate(ends) if error.index < end)
    return Inexact(index, values[index], error.reason)


def _type_of_dicts(values: list[Any]) -> Any:
    names = dict.fromkeys(chain.from_iterable(values))
    fields = []
    for name in names:
        if not isinstance(name, str):
            index = next(index for index, value in enumerate(values) if name in value)
            raise Inexact(index, values[index], f"its key {name!r} is not a str, which a field of Arrow has")
        try:
            fields.append((name, inferred_type([value.get(name) for value in values])))
        except Inexact as error:
            raise Inexact(error.index, values[error.index], f"in the field {name!r}, {error.reason}") from None
    return pyarrow.struct(fields)


def _type_of_instants(values: list[dt.datetime]) -> Any:
    zone = values[0].tzinfo
    for index, value in enumerate(values):
        if (value.tzinfo is None) != (zone is None):
            raise Inexact(index, value, "a datetime with a zone does not go with one without in one column")
    unit = "ns" if any(getattr(value, "nanosecond", 0) for value in values) else "us"
    return pyarrow.timestamp(unit, None if zone is None else _zone_name(values[0]))


def _zone_name(value: dt.datetime) -> str:
    """Returns the name of a zone as Arrow has it: that of the zone database, or an offset."""
    if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key is not None:
        return str(value.tzinfo.key)
    offset = value.utcoffset()
    if not offset:
        return "UTC"
    if offset % dt.timedelta(minutes=1):
        return "UTC"  # Arrow has no name for such an offset; the instant stays
    minutes = abs(offset) // dt.timedelta(minutes=1)
    return f"{'-' if offset < dt.timedelta(0) else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _type_of_decimals(values: list[Decimal]) -> Any:
    whole = scale = 0
    for index, value in enumerate(values):
        _, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int):
            raise Inexact(index, value, f"a decimal of Arrow cannot be {value}")
        whole, scale = max(whole, len(digits) + exponent), max(scale, -exponent)
        if max(whole, 0) + scale > _DECIMAL256_DIGITS:
            reason = f"{value} needs {max(whole, 0) + scale} digits, and a decimal of Arrow has {_DECIMAL256_DIGITS}"
            raise Inexact(index, value, reason)
    return _decimal_type(max(whole, 0) + scale, scale)


def _decimal_type(precision: int, scale: int) -> Any:
    precision = max(precision, 1)
    if precision <= _DECIMAL128_DIGITS:
        return pyarrow.decimal128(precision, scale)
    if precision <= _DECIMAL256_DIGITS:
        return pyarrow.decimal256(precision, scale)
    raise TypeError(f"{precision} digits are more than the {_DECIMAL256_DIGITS} of a decimal of Arrow")


def _finer(one: Any, other: Any) -> str:
    return str(max((one.unit, other.unit), key=lambda unit: _UNITS_PER_SECOND[unit]))


def _as_decimal(type_: Any) -> Any:
    """Returns (precision, scale) of a decimal or of int64; None for other types."""
    if _types.is_decimal(type_):
        return type_.precision, type_.scale
    return (19, 0) if type_ == pyarrow.int64() else None


# ------------------------------------------------------------------------------------------------ arrays


def _builder_of(type_: Any) -> Callable[[Sequence[Any], Any], Any] | None:
    """Returns what builds arrays of a type; None for the few that Arrow itself builds."""
    return next((build for is_type, build in _BUILDERS if is_type(type_)), None)


def _from_numbers(values: Sequence[Any], type_: Any, convert: Callable[[Any], int], code: str) -> Any:
    """Builds an array from one number per value. ``convert`` raises ValueError for a value that does not fit."""
    numbers: list[int] = []
    try:
        for value in values:
            numbers.append(0 if value is None else convert(value))
        data = numpy.array(numbers, code)
    except OverflowError:
        index = next(index for index, number in enumerate(numbers) if not _fits(number, code))
        raise Inexact(index, values[index], f"{type_} does not hold {_named(values[index])}") from None
    except ValueError as error:
        raise Inexact(len(numbers), values[len(numbers)], str(error)) from None
    return _array(values, type_, [data])


def _array(values: Sequence[Any], type_: Any, buffers: list[Any], children: list[Any] | None = None) -> Any:
    """Builds an array from the buffers after that of the nulls."""
    nulls, is_valid = None, [value is not None for value in values]
    if not all(is_valid):
        nulls = pyarrow.py_buffer(numpy.packbits(numpy.array(is_valid), bitorder="little"))
    return pyarrow.Array.from_buffers(
        type_, len(values), [nulls, *map(pyarrow.py_buffer, buffers)], children=children or []
    )


def _fits(number: int, code: str) -> bool:
    limits = numpy.iinfo(code)
    return limits.min <= number <= limits.max


def _refusal(value: Any, type_: Any) -> ValueError:
    return ValueError(f"{type_} does not hold {_named(value)}")


def _integers(values: Sequence[Any], type_: Any) -> Any:
    code = f"{'i' if _types.is_signed_integer(type_) else 'u'}{type_.bit_width // 8}"
    if set(map(type, values)) == {int}:
        try:
            return _plain(type_, numpy.array(values, code))
        except OverflowError:
            pass  # the slow way names the value

    def convert(value: Any) -> int:
        if type(value) is int:
            return value
        if type(value) in (float, Decimal) and math.isfinite(value) and value == int(value):
            return int(value)
        raise _refusal(value, type_)

    return _from_numbers(values, type_, convert, code)


def _plain(type_: Any, data: Any) -> Any:
    return pyarrow.Array.from_buffers(type_, len(data), [None, pyarrow.py_buffer(data)])


def _floats(values: Sequence[Any], type_: Any) -> Any:
    code = f"f{type_.bit_width // 8}"
    if set(map(type, values)) == {float} and code == "f8":
        return _plain(type_, numpy.array(values, code))
    numbers = []
    for index, value in enumerate(values):
        if type(value) is int:
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if number != value:
                raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
            numbers.append(number)
        elif type(value) is float:
            numbers.append(value)
        elif value is None:
            numbers.append(0.0)
        else:
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
    data = numpy.array(numbers, "f8")
    if code != "f8":
        data = _narrowed(values, data, type_, code)
    return _array(values, type_, [data])


def _narrowed(values: Sequence[Any], data: Any, type_: Any, code: str) -> Any:
    """Rounds floats to fewer bits; what would become infinite or 0, and an int that would change, is refused."""
    with numpy.errstate(over="ignore", under="ignore"):
        narrow = data.astype(code)
    is_lost = (numpy.isinf(narrow) & ~numpy.isinf(data)) | ((narrow == 0) & (data != 0))
    is_int = numpy.array([type(value) is int for value in values], bool)
    is_lost |= is_int & (narrow.astype("f8") != data)
    if is_lost.any():
        index = int(is_lost.argmax())
        raise Inexact(index, values[index], f"{type_} does not hold {_named(values[index])}")
    return narrow


def _bools(values: Sequence[Any], type_: Any) -> Any:
    for index, value in enumerate(values):
        if value is not None and type(value) is not bool:
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
    return _array(values, type_, [numpy.packbits(numpy.array([bool(each) for each in values]), bitorder="little")])


def _texts(values: Sequence[Any], type_: Any) -> Any:
    wanted = str if _types.is_string(type_) or _types.is_large_string(type_) else bytes
    if wanted is str and set(map(type, values)) == {str} and (joined := "".join(values)).isascii():
        return _by_lengths(values, type_, list(map(len, values)), joined.encode())
    parts: list[bytes] = []
    for index, value in enumerate(values):
        if value is not None and type(value) is not wanted:
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
        try:
            parts.append(value.encode("utf-8") if isinstance(value, str) else value or b"")
        except UnicodeEncodeError:
            reason = f"a text of Arrow is UTF-8, which cannot hold the lone surrogate in {_named(value)}"
            raise Inexact(index, value, reason) from None
    if _types.is_fixed_size_binary(type_):
        return _fixed(values, parts, type_)
    return _by_lengths(values, type_, list(map(len, parts)), b"".join(parts))


def _by_lengths(values: Sequence[Any], type_: Any, lengths: list[int], data: bytes) -> Any:
    is_large = _types.is_large_string(type_) or _types.is_large_binary(type_)
    ends = numpy.zeros(len(lengths) + 1, "i8")
    numpy.cumsum(lengths, out=ends[1:])
    if not is_large and ends[-1] > numpy.iinfo("i4").max:
        raise Inexact(0, values[0], f"{type_} holds 2 GiB of one batch: write smaller batches, or give large_{type_}")
    return _array(values, type_, [ends.astype("i8" if is_large else "i4"), data])


def _fixed(values: Sequence[Any], parts: list[bytes], type_: Any) -> Any:
    width = type_.byte_width
    for index, (value, part) in enumerate(zip(values, parts, strict=True)):
        if value is None:
            parts[index] = bytes(width)
        elif len(part) != width:
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}, which has {len(part)} bytes")
    return _array(values, type_, [b"".join(parts)])


def _dates(values: Sequence[Any], type_: Any) -> Any:
    scale, code = (1, "i4") if _types.is_date32(type_) else (86_400_000, "i8")

    def convert(value: Any) -> int:
        if type(value) is not dt.date:
            raise _refusal(value, type_)
        return (value.toordinal() - _EPOCH_DAY) * scale

    return _from_numbers(values, type_, convert, code)


def _instants(values: Sequence[Any], type_: Any) -> Any:
    scaled = _scaled(type_)
    if type_.unit == "us" and set(map(type, values)) == {dt.datetime} and _are_all_of(values, type_.tz):
        bare = values if type_.tz is None else [value.replace(tzinfo=None) for value in values]
        return _plain(type_, numpy.array(bare, "M8[us]").view("i8"))

    def convert(value: Any) -> int:
        if not isinstance(value, dt.datetime) or (value.tzinfo is None) != (type_.tz is None):
            raise _refusal(value, type_)
        since = value - _EPOCH if type_.tz is None else _since_epoch(value)
        if not _FIRST <= since <= _LAST:
            raise ValueError(f"{_named(value)} is outside the years 1 to 9999 in UTC, which no reader in Python takes")
        return scaled(value, since // _MICROSECOND, getattr(value, "nanosecond", 0))

    return _from_numbers(values, type_, convert, "i8")


def _are_all_of(values: Sequence[dt.datetime], zone: str | None) -> bool:
    """Returns whether no value needs a conversion: all are without a zone, or all in UTC."""
    zones = {value.tzinfo for value in values}
    return zones == ({None} if zone is None else {dt.UTC})


def _since_epoch(value: dt.datetime) -> dt.timedelta:
    """Returns the time since 1970 in UTC, also where the instant is outside the years 1 to 9999 there."""
    offset = value.utcoffset()
    assert offset is not None
    return value.replace(tzinfo=None) - _EPOCH - offset


def _durations(values: Sequence[Any], type_: Any) -> Any:
    scaled = _scaled(type_)

    def convert(value: Any) -> int:
        if not isinstance(value, dt.timedelta):
            raise _refusal(value, type_)
        return scaled(value, value // _MICROSECOND, getattr(value, "nanoseconds", 0))

    return _from_numbers(values, type_, convert, "i8")


def _times(values: Sequence[Any], type_: Any) -> Any:
    scaled = _scaled(type_)

    def convert(value: Any) -> int:
        if type(value) is not dt.time or value.tzinfo is not None:
            raise _refusal(value, type_)
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return scaled(value, seconds * 10**6 + value.microsecond, 0)

    return _from_numbers(values, type_, convert, f"i{type_.bit_width // 8}")


def _scaled(type_: Any) -> Callable[[Any, int, int], int]:
    """Returns what converts (value, microseconds, further nanoseconds) to the unit of a type."""
    per_second = _UNITS_PER_SECOND[type_.unit]

    def scaled(value: Any, microseconds: int, nanoseconds: int) -> int:
        number, rest = divmod((microseconds * 1000 + nanoseconds) * per_second, 10**9)
        if rest:
            raise _refusal(value, type_)
        return number

    return scaled


def _decimals(values: Sequence[Any], type_: Any) -> Any:
    width, parts = type_.bit_width // 8, []
    for index, value in enumerate(values):
        if value is None:
            parts.append(bytes(width))
            continue
        if (unscaled := _unscaled(value, type_)) is None:
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
        parts.append(unscaled.to_bytes(width, sys.byteorder, signed=True))
    return _array(values, type_, [b"".join(parts)])


def _unscaled(value: Any, type_: Any) -> int | None:
    """Returns a number in units of the last digit of a type; None if the type does not hold it."""
    if type(value) not in (int, Decimal):
        return None
    number = Decimal(value)
    if not number.is_finite() or number.adjusted() >= type_.precision:
        return None
    scaled = number.scaleb(type_.scale, _EXACT)
    unscaled = int(scaled) if -scaled.adjusted() < _DECIMAL256_DIGITS else 0
    return unscaled if unscaled == scaled and abs(unscaled) < 10**type_.precision else None


def _lists(values: Sequence[Any], type_: Any) -> Any:
    size = type_.list_size if _types.is_fixed_size_list(type_) else None
    for index, value in enumerate(values):
        if value is not None and (type(value) is not list or size not in (None, len(value))):
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
    items = [[None] * (size or 0) if value is None else value for value in values]
    lengths = list(map(len, items))
    try:
        inner = exact_array(list(chain.from_iterable(items)), type_.value_type)
    except Inexact as error:
        raise _outer(error, values, lengths) from None
    if size is not None:
        return _array(values, type_, [], [inner])
    ends = numpy.zeros(len(values) + 1, "i8" if _types.is_large_list(type_) else "i4")
    numpy.cumsum(lengths, out=ends[1:])
    return _array(values, type_, [ends], [inner])


def _structs(values: Sequence[Any], type_: Any) -> Any:
    names = [field.name for field in type_]
    for index, value in enumerate(values):
        if value is None:
            continue
        if type(value) is not dict:
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
        if surplus := [name for name in value if name not in names]:
            reason = f"there is no field for its {', '.join(map(str, surplus))}; the fields are {', '.join(names)}"
            raise Inexact(index, value, reason)
    children = []
    for field in type_:
        column = [None if value is None else value.get(field.name) for value in values]
        try:
            children.append(exact_array(column, field.type))
        except Inexact as error:
            reason = f"in the field {field.name!r}, {error.reason}"
            raise Inexact(error.index, values[error.index], reason) from None
    return _array(values, type_, [], children)


def _nulls(values: Sequence[Any], type_: Any) -> Any:
    for index, value in enumerate(values):
        if value is not None:
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
    return pyarrow.nulls(len(values))


def _dictionaries(values: Sequence[Any], type_: Any) -> Any:
    return exact_array(values, type_.value_type).dictionary_encode().cast(type_)


_BUILDERS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Sequence[Any], Any], Any]], ...]] = (
    (_types.is_integer, _integers),
    (_types.is_floating, _floats),
    (_types.is_boolean, _bools),
    (_types.is_string, _texts),
    (_types.is_large_string, _texts),
    (_types.is_fixed_size_binary, _texts),
    (_types.is_binary, _texts),
    (_types.is_large_binary, _texts),
    (_types.is_timestamp, _instants),
    (_types.is_date, _dates),
    (_types.is_time, _times),
    (_types.is_duration, _durations),
    (lambda type_: _types.is_decimal128(type_) or _types.is_decimal256(type_), _decimals),
    (lambda type_: _types.is_list(type_) or _types.is_large_list(type_) or _types.is_fixed_size_list(type_), _lists),
    (_types.is_struct, _structs),
    (_types.is_null, _nulls),
    (_types.is_dictionary, _dictionaries),
)


def _by_arrow(values: Sequence[Any], type_: Any) -> Any:
    """Lets Arrow build an array of a rare type, and compares what it holds with the values."""
    try:
        array = pyarrow.array(values, type_)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError) as error:
        index = next((index for index in range(len(values)) if not _is_taken(values[index], type_)), 0)
        raise Inexact(index, values[index], " ".join(str(error).split())) from None
    for index, (value, held) in enumerate(zip(values, array.to_pylist(), strict=True)):
        held = dict(held) if isinstance(value, dict) and isinstance(held, list) else held
        if held != value or type(held) is not type(value):
            raise Inexact(index, value, f"{type_} does not hold {_named(value)}")
    return array


def _is_taken(value: Any, type_: Any) -> bool:
    try:
        pyarrow.array([value], type_)
    except (pyarrow.ArrowException, OverflowError, TypeError, ValueError):
        return False
    return True


def _named(value: Any) -> str:
    """Names a value with its type, cut where it is long."""
    text = repr(value)
    text = text if len(text) <= 60 else f"{text[:60]}..."
    if isinstance(value, dt.datetime):
        return f"the datetime {value.isoformat()}"
    return f"the {type(value).__name__} {text}"
