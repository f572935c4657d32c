"""Types of the columns of a keyed table, and how they are stored.

Ints of a snapshot that are near each other are narrowed: the least of them, and how much each is above it in 1, 2 or 4
bytes. It takes a tenth of the time of LZ4, and the length tells that an array was narrowed.

Only code of columns imports this module and those that import it: a job of rows loads neither numpy's types nor pyarrow
for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

VALID_SUFFIX: Final = "?"
"""Suffix of the name under which a table keeps where a nullable column has a value."""

WIDTH_BYTES_MAX: Final = 1 << 16
"""Maximum width of a value of one column."""

NARROWED_MIN: Final = 64
"""Values below which an array is not narrowed; it has more bytes then than the least value and the narrow ones."""

LEAST_BYTES: Final = 8
WIDTHS: Final = (1, 2, 4)

CODE: Final = re.compile(r"[<>|=]?([biufV])(\d{1,6})((?:,\d{1,6}){0,4})")
CODES_MAX: Final = 1024
"""Codes of types that are kept: windows make a table for each pane."""

INTEGER_KEY: Final = re.compile(r"(u?int(8|16|32|64)|date(32|64)|time(32|64)|timestamp|duration)\b")


class TableSchema(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Types of a table as snapshots name them: the Arrow types of its keys, and the name and code of each column."""

    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]

    @property
    def has_integer_key(self) -> bool:
        """Returns whether the key is one column of integers or times, which is kept as int64."""
        return len(self.keys) == 1 and INTEGER_KEY.match(self.keys[0]) is not None

    def __str__(self) -> str:
        columns = ", ".join(f"{name}: {code}" for name, code in self.columns)
        return f"keys {', '.join(self.keys)} and columns {columns or 'none'}"


@dataclass(frozen=True)
class ColumnSpec:
    """Columns of a keyed table.

    - ``keys``: the Arrow type of each key column.
    - ``values``: the numpy type of each value column: bool, an integer, a float, fixed-width bytes as ``"V16"``, or
      several of one type a key, as ``(numpy.int64, 10)``. Times are int64 in nanoseconds.
    - ``initial``: the value of a new key in columns where it is not 0.
    - ``nullable``: columns of which ``table.valid`` says where they have a value; a new key has none.
    """

    keys: tuple[Any, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    initial: Mapping[str, Any] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        assert self.keys, "a keyed table has a key"
        assert not any(name.endswith(VALID_SUFFIX) for name in self.values), self.values
        assert {*self.initial, *self.nullable} <= {*self.values}, "a column that is not among the values"
        for name, dtype in self.values.items():
            type_of_code(code_of(numpy.dtype(dtype)), name)

    @cached_property
    def dtypes(self) -> dict[str, numpy.dtype[Any]]:
        """Returns the stored columns: the values in order, then where the nullable ones have a value."""
        dtypes = {name: numpy.dtype(dtype) for name, dtype in self.values.items()}
        masks = [name for name in self.values if name in self.nullable]
        return {**dtypes, **{name + VALID_SUFFIX: numpy.dtype(bool) for name in masks}}

    @cached_property
    def schema(self) -> TableSchema:
        """Returns the types as snapshots name them."""
        columns = tuple((name, code_of(dtype)) for name, dtype in self.dtypes.items())
        return TableSchema(tuple(map(str, self.keys)), columns)

    @cached_property
    def first_values(self) -> dict[str, NDArray[Any]]:
        """Returns the values of a new key by the names of the stored columns."""
        return {
            name: numpy.zeros((), dtype.base)
            if name not in self.initial
            else numpy.array(self.initial[name], dtype.base)
            for name, dtype in self.dtypes.items()
        }


class ColumnSizes(NamedTuple):
    """Sizes of state in columns; tests have small ones.

    - ``section_bytes``: target size of a section of a snapshot.
    - ``compacted_min``: removed slots below which a table is not compacted.
    - ``merged_at_once``: chunks of rows of about the same size that are merged into one.
    - ``chunks_first``: chunks of rows up to which small neighbours stay apart.
    """

    section_bytes: int = 1 << 20
    compacted_min: int = 1 << 10
    merged_at_once: int = 8
    chunks_first: int = 32


SIZES: Final = ColumnSizes()


def code_of(dtype: numpy.dtype[Any]) -> str:
    """Returns the code of a numpy type: ``<i8``, or ``<i8,10`` for ten of them a row."""
    return ",".join([dtype.base.str, *map(str, dtype.shape)])


@lru_cache(maxsize=CODES_MAX)
def type_of_code(code: str, name: str) -> numpy.dtype[Any]:
    """Returns the numpy type of a code.

    Raises: ValueError: a table cannot have a column of this type.
    """
    match = CODE.fullmatch(code)
    if match is None:
        raise ValueError(f"a column cannot be of the type {code}: {name}")
    shape = tuple(int(part) for part in match[3].split(",")[1:])
    width = int(match[2]) * prod(shape)
    if not 0 < width <= WIDTH_BYTES_MAX:
        raise ValueError(f"a value of {width} bytes is beyond the limit of {WIDTH_BYTES_MAX}: {name}")
    try:
        base = numpy.dtype(code.partition(",")[0])
    except TypeError as error:
        raise ValueError(f"{code} is no type: {name}") from error
    if not base.isnative:
        raise ValueError(f"the type {code} has another byte order: {name}")
    return numpy.dtype((base, shape)) if shape else base


def bytes_of(array: NDArray[Any]) -> NDArray[numpy.uint8]:
    """Returns the bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(numpy.uint8) if array.size else numpy.empty(0, numpy.uint8)


def narrowed(array: NDArray[Any]) -> NDArray[numpy.uint8]:
    """Returns the bytes of a contiguous array, in fewer if it has ints that are near each other."""
    dtype = array.dtype
    if dtype.kind not in "iu" or dtype.itemsize == 1 or array.size < NARROWED_MIN:
        return bytes_of(array)
    least = array.min()
    range_of = int(array.max()) - int(least)
    width = next((width for width in WIDTHS if range_of < 1 << 8 * width), dtype.itemsize)
    if width >= dtype.itemsize:
        return bytes_of(array)
    found = numpy.empty(LEAST_BYTES + array.size * width, numpy.uint8)
    found[:LEAST_BYTES].view(f"{dtype.kind}8")[:] = least
    numpy.subtract(array.reshape(-1), least, out=found[LEAST_BYTES:].view(f"u{width}"), casting="unsafe")
    return found


def widened(data: memoryview, dtype: numpy.dtype[Any], count: int) -> NDArray[Any] | None:
    """Returns the values of a narrowed array; None: the data is not one.

    Raises: ValueError: a value is too large for the type.
    """
    width = next((width for width in WIDTHS if len(data) == LEAST_BYTES + count * width), dtype.itemsize)
    if dtype.kind not in "iu" or count < NARROWED_MIN or width >= dtype.itemsize:
        return None
    least = int(numpy.frombuffer(data, f"{dtype.kind}8", 1)[0])
    above = numpy.frombuffer(data, numpy.uint8)[LEAST_BYTES:].copy().view(f"u{width}")
    limits = numpy.iinfo(dtype)
    if least < limits.min or least + int(above.max()) > limits.max:
        raise ValueError(f"a narrowed value is beyond {dtype}")
    values: NDArray[Any] = above.astype(dtype)
    values += dtype.type(least)
    return values
