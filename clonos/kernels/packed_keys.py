"""Keys of several columns, of columns with nulls and of other types than int64: packed to one binary per row.

A packed row has, for each column in order, a byte that is 1 unless the value is null, and then the bytes of a value of
fixed width, or the 32-bit length of a text; the characters of all texts follow. A null has zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy
import pyarrow

from clonos.kernels import choice
from clonos.kernels.arrays import fixed_values, texts_of
from clonos.kernels.index import HashIndex, new_index, type_of_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXT_BYTES_MAX: Final = (1 << 32) - 1
WORDS: Final = {1: numpy.int8, 2: numpy.int16, 4: numpy.int32, 8: numpy.int64}


FORMS_MAX: Final = 256
"""Types of keys whose forms are kept."""

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1


class KeyIndex:
    """Index from the rows of key columns to slots.

    A single column stays as it is until its first null: a number, date or time as int64, a text or binary as bytes. Two
    columns of numbers, dates or times become one int64, until a null or a number comes that needs more than 32 bits.
    Everything else is packed. Slots do not change when keys become packed.
    """

    def __init__(self, types: Sequence[Any], room: int = 0) -> None:
        """Takes the Arrow types of the columns; a dictionary column has the type of its values.

        ``room``: the number of rows that are expected, up to which the index does not grow.

        Raises: TypeError, if a type cannot be a key.
        """
        self.types = tuple(types)
        form = _form_of(self.types)
        self._is_pair, self._is_packed, self._word = form.is_pair, form.is_packed, form.word
        self._index: HashIndex = new_index(form.kind, room=room)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Memory of the index in bytes."""
        return self._index.nbytes

    def add(self, columns: Sequence[Any]) -> NDArray[numpy.int32]:
        """Returns the slot of each row; unknown rows get the next slots.

        Raises: TypeError, if the columns have other types; OverflowError, if the index is full.
        """
        keys = self._keys(columns)  # with the first null this replaces the index
        return self._index.add(keys)

    def find(self, columns: Sequence[Any]) -> NDArray[numpy.int32]:
        """Returns the slot of each row, -1 for an unknown one.

        Raises: TypeError, if the columns have other types.
        """
        keys = self._keys(columns)
        return self._index.find(keys)

    def columns(self, first: int = 0) -> list[Any]:
        """Returns the key columns of the slots from ``first`` on.

        Raises: IndexError, if ``first`` is not within 0 and the number of keys.
        """
        return self._columns_of(self._index.keys(first))

    def columns_at(self, slots: NDArray[Any]) -> list[Any]:
        """Returns the key columns of slots, in the order of the argument.

        Raises: IndexError, if a slot is not in use.
        """
        return self._columns_of(self._index.keys_at(slots))

    def _keys(self, columns: Sequence[Any]) -> Any:
        if self._word is not None and not self._is_packed and len(columns) == 1:  # the usual case, which costs least
            column = columns[0]
            if column.type == self.types[0] and not column.null_count:
                return fixed_values(column, self._word).astype(numpy.int64, copy=False)
        columns = decoded(columns, self.types)
        if not self._is_packed:
            if self._is_pair and (pairs := _pairs(columns)) is not None:
                return pairs
            if self._is_pair or columns[0].null_count:
                packed = new_index("bytes")
                packed.add(pack(self.columns()))
                self._index, self._is_packed = packed, True
        if self._is_packed:
            return pack(columns)
        if pyarrow.types.is_boolean(self.types[0]) or fixed_bytes(self.types[0]):
            return _fixed_values(columns[0]).astype(numpy.int64, copy=False)
        return columns[0]

    def _columns_of(self, keys: Any) -> list[Any]:
        if self._is_packed:
            return unpack(keys, self.types)
        if self._is_pair:
            parts = keys >> 32, keys.astype(numpy.int32)
            return [_word_column(part, kind) for part, kind in zip(parts, self.types, strict=True)]
        (kind,) = self.types
        if self._word is not None:
            return [_fixed_column(keys.astype(self._word, copy=False), None, kind)]
        return [_word_column(keys, kind) if isinstance(keys, numpy.ndarray) else _as_text(keys, kind)]


class _Form(NamedTuple):
    """Form of the keys of an index at first. ``word``: the type of the only column, if its values are whole bytes."""

    kind: type_of_keys
    is_pair: bool
    is_packed: bool
    word: numpy.dtype[Any] | None


@lru_cache(maxsize=FORMS_MAX)
def _form_of(types: tuple[Any, ...]) -> _Form:
    """Returns the form of keys of some types: windows make an index for each pane.

    Raises: TypeError, if a type cannot be a key.
    """
    check_key_types(types)
    kind = _kind_of_single(types)
    is_pair = len(types) == 2 and all(map(_is_word, types))
    is_packed = kind is None and not is_pair
    size = fixed_bytes(types[0]) if kind == "int64" else 0
    word = numpy.dtype(WORDS[size]) if size else None
    return _Form("bytes" if is_packed else kind or "int64", is_pair, is_packed, word)


def check_key_types(types: Sequence[Any]) -> None:
    """Checks that columns of these types can be packed.

    Raises: TypeError, if there is none, or one of them has no constant width and is no text.
    """
    if not types:
        raise TypeError("a key needs at least one column")
    for kind in types:
        if not (_is_text(kind) or pyarrow.types.is_boolean(kind) or fixed_bytes(kind)):
            raise TypeError(f"a column of {kind} cannot be a key: use whole numbers, texts, dates or times")


def key_types(types: Sequence[Any]) -> list[Any] | None:
    """Returns the types of an index for key columns of some types, those of the values of dictionaries; None if one of
    them cannot be a key."""
    found = [kind.value_type if pyarrow.types.is_dictionary(kind) else kind for kind in types]
    try:
        check_key_types(found)
    except TypeError:
        return None
    return found


def fixed_bytes(kind: Any) -> int:
    """Returns the bytes of a value of an Arrow type that can be a key, 0 for texts, bits and everything else."""
    types = pyarrow.types
    if types.is_integer(kind) or types.is_temporal(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return kind.bit_width // 8  # type: ignore[no-any-return]
    return 0


def decoded(columns: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Returns the columns without dictionaries.

    Raises: TypeError, if they have other types; ValueError, if their lengths differ.
    """
    found = [column.dictionary_decode() if pyarrow.types.is_dictionary(column.type) else column for column in columns]
    if [column.type for column in found] != list(types):
        names = [", ".join(map(str, kinds)) for kinds in ([column.type for column in found], types)]
        raise TypeError(f"key columns have the types {names[0]}, and {names[1]} are expected")
    if len({*map(len, found)}) > 1:
        raise ValueError(f"key columns have {', '.join(map(str, map(len, found)))} rows")
    return found


def pack(columns: Sequence[Any]) -> Any:
    """Returns a row of bytes for each row of the columns, equal exactly where all columns are equal or null.

    Raises: TypeError, if a column has no constant width and is no text; ValueError, if their lengths differ.
    """
    types = [column.type.value_type if pyarrow.types.is_dictionary(column.type) else column.type for column in columns]
    check_key_types(types)
    columns = decoded(columns, types)
    heads = numpy.zeros(len(columns[0]), _head(types))
    texts = []
    for number, column in enumerate(columns):
        if _is_text(column.type):
            text = _as_binary(column)
            texts.append(text)
            offsets = texts_of(text).offsets
            sizes = numpy.diff(offsets)
            if len(sizes) and sizes.max() > TEXT_BYTES_MAX:
                raise ValueError(f"a key has a text of {sizes.max()} bytes, and at most {TEXT_BYTES_MAX} are possible")
            values = sizes
        else:
            values = _fixed_values(column)
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            heads[f"valid{number}"] = valid
            heads[f"value{number}"][valid] = values[valid]
        else:
            heads[f"valid{number}"] = 1
            heads[f"value{number}"] = values
    packed = _binaries(heads)
    if not texts:
        return packed
    from pyarrow import compute

    return compute.binary_join_element_wise(packed, *texts, pyarrow.scalar(b"", pyarrow.large_binary()))


def unpack(keys: Any, types: Sequence[Any]) -> list[Any]:
    """Returns the columns of packed rows.

    Raises: ValueError, if a row is none of these types.
    """
    offsets, data = texts_of(keys)
    offsets = offsets.astype(numpy.int64, copy=False)
    head = _head(types)
    sizes = numpy.diff(offsets)
    if len(sizes) and sizes.min() < head.itemsize:
        raise ValueError(f"a packed key of {sizes.min()} bytes is shorter than {head.itemsize}")
    heads = data[offsets[:-1, None] + numpy.arange(head.itemsize)].reshape(-1).view(head)
    starts = offsets[:-1] + head.itemsize
    columns = []
    for number, kind in enumerate(types):
        valid, values = heads[f"valid{number}"], numpy.ascontiguousarray(heads[f"value{number}"])
        if len(valid) and valid.max() > 1:
            raise ValueError(f"a packed key has the mark {valid.max()} in place of 0 or 1")
        is_valid = None if valid.all() else valid.astype(bool)
        if _is_text(kind):
            ends = starts + values
            if (ends > offsets[1:]).any():
                raise ValueError("a packed key ends within a text")
            columns.append(_text_column(data, starts, values.astype(numpy.int64), is_valid, kind))
            starts = ends
        else:
            columns.append(_fixed_column(values, is_valid, kind))
    if (starts != offsets[1:]).any():
        raise ValueError("a packed key goes on after its last column")
    return columns


def _kind_of_single(types: Sequence[Any]) -> type_of_keys | None:
    if len(types) != 1:
        return None
    if _is_text(types[0]):
        return "bytes"
    return "int64" if _is_word(types[0]) else None


def _is_word(kind: Any) -> bool:
    """Returns whether values of an Arrow type are numbers of at most 64 bits."""
    return not _is_text(kind) and (fixed_bytes(kind) or 1) in WORDS


def _pairs(columns: Sequence[Any]) -> NDArray[numpy.int64] | None:
    """Returns the rows of two columns as one number each; None if there is a null or more than 32 bits in one."""
    if columns[0].null_count or columns[1].null_count:
        return None
    high, low = map(_fixed_values, columns)
    for values in (high, low):
        if values.itemsize == 8 and len(values) and not (values.min() >= INT32_MIN and values.max() <= INT32_MAX):
            return None
    pairs: NDArray[numpy.int64] = (high.astype(numpy.int64) << 32) | low.astype(numpy.uint32)
    return pairs


def _is_text(kind: Any) -> bool:
    types = pyarrow.types
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind)
    )


def _head(types: Sequence[Any]) -> numpy.dtype[numpy.void]:
    fields: list[tuple[str, Any]] = []
    for number, kind in enumerate(types):
        size = fixed_bytes(kind) or 1
        value = "<u4" if _is_text(kind) else WORDS.get(size, f"V{size}")
        fields += [(f"valid{number}", numpy.uint8), (f"value{number}", value)]
    return numpy.dtype(fields)


def _fixed_values(column: Any) -> NDArray[Any]:
    """Returns the values of a column as integers or as plain bytes; those of nulls are arbitrary."""
    if pyarrow.types.is_boolean(column.type):
        return column.fill_null(False).to_numpy(zero_copy_only=False).view(numpy.int8)  # type: ignore[no-any-return]
    size = fixed_bytes(column.type)
    return fixed_values(column, numpy.dtype(WORDS.get(size, f"V{size}")))


def _word_column(numbers: NDArray[Any], kind: Any) -> Any:
    return _fixed_column(numbers.astype(WORDS[fixed_bytes(kind) or 1]), None, kind)


def _fixed_column(values: NDArray[Any], is_valid: NDArray[numpy.bool] | None, kind: Any) -> Any:
    validity = None if is_valid is None else _bits(is_valid)
    data = _bits(values.astype(bool)) if pyarrow.types.is_boolean(kind) else pyarrow.py_buffer(values)
    return pyarrow.Array.from_buffers(kind, len(values), [validity, data])


def _text_column(
    data: NDArray[numpy.uint8],
    starts: NDArray[numpy.int64],
    sizes: NDArray[numpy.int64],
    is_valid: NDArray[numpy.bool] | None,
    kind: Any,
) -> Any:
    if choice.native is not None:
        bounds = numpy.stack((starts, starts + sizes), axis=1).reshape(-1)  # each text and what lies after it, by turns
        rows = numpy.arange(0, len(bounds), 2)
        offsets, chosen = choice.native.gather_texts(
            bounds if len(bounds) else numpy.zeros(1, numpy.int64), data, True, rows
        )
    else:
        offsets = numpy.concatenate(([0], numpy.cumsum(sizes)))
        chosen = data[numpy.arange(offsets[-1]) + numpy.repeat(starts - offsets[:-1], sizes)]
    buffers = [None if is_valid is None else _bits(is_valid), pyarrow.py_buffer(offsets), pyarrow.py_buffer(chosen)]
    return _as_text(pyarrow.Array.from_buffers(pyarrow.large_binary(), len(sizes), buffers), kind)


def _bits(flags: NDArray[numpy.bool]) -> Any:
    return pyarrow.py_buffer(numpy.packbits(flags, bitorder="little"))


def _binaries(heads: NDArray[numpy.void]) -> Any:
    offsets = numpy.arange(len(heads) + 1, dtype=numpy.int64) * heads.itemsize
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(heads.view(numpy.uint8))]
    return pyarrow.Array.from_buffers(pyarrow.large_binary(), len(heads), buffers)


def _as_binary(column: Any) -> Any:
    """Returns a text column as large binaries, with empty ones for nulls."""
    kind = pyarrow.types
    if kind.is_string(column.type):
        column = column.view(pyarrow.binary())
    elif kind.is_large_string(column.type):
        column = column.view(pyarrow.large_binary())
    if column.null_count:
        column = column.fill_null(b"")
    return column.cast(pyarrow.large_binary())


def _as_text(binaries: Any, kind: Any) -> Any:
    """Returns large binaries as a column of a text or binary type, which does not check characters."""
    if kind == pyarrow.large_binary():
        return binaries
    if kind == pyarrow.large_string():
        return binaries.view(kind)
    narrow = binaries.cast(pyarrow.binary())
    return narrow if kind == pyarrow.binary() else narrow.view(kind)
