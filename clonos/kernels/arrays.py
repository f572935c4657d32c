"""Checks of what callers give to kernels, and the buffers of Arrow arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
import pyarrow

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Texts(NamedTuple):
    """Buffers of an array of texts or binaries: row i is ``data[offsets[i]:offsets[i + 1]]``."""

    offsets: NDArray[Any]  # int32 or int64, one more than rows
    data: NDArray[numpy.uint8]

    @property
    def is_large(self) -> bool:
        """Whether offsets have 8 bytes."""
        return self.offsets.itemsize == 8


def as_int64_keys(keys: Any) -> NDArray[numpy.int64]:
    """Returns the keys as a contiguous array.

    Raises: TypeError, if they are no array of int64.
    """
    if not isinstance(keys, numpy.ndarray) or keys.dtype != numpy.int64 or keys.ndim != 1:
        raise TypeError(f"keys of an int64 index are a numpy array of int64, not {_name(keys)}")
    return numpy.ascontiguousarray(keys)


def as_binary_keys(keys: Any) -> Any:
    """Returns texts or binaries as an Arrow array of binaries, without a copy.

    Raises: TypeError, if they are something else; ValueError, if one is null.
    """
    binary = _as_binary(keys) if isinstance(keys, pyarrow.Array) else None
    if binary is None:
        raise TypeError(f"keys of a bytes index are an Arrow array of texts or binaries, not {_name(keys)}")
    if keys.null_count:
        raise ValueError(f"{keys.null_count} of {len(keys)} keys are null: pack the columns (key_columns)")
    return binary


def as_slots(slots: Any, end: int) -> NDArray[numpy.int64]:
    """Returns slots as an array for addressing.

    Raises: TypeError, if they are no array of integers; IndexError, if one is not within 0 and ``end``.
    """
    if not isinstance(slots, numpy.ndarray) or slots.dtype.kind not in "iu" or slots.ndim != 1:
        raise TypeError(f"slots are a numpy array of integers, not {_name(slots)}")
    if len(slots) and not (slots.min() >= 0 and slots.max() < end):
        raise IndexError(f"slots from {slots.min()} to {slots.max()} were given, and 0 to {end - 1} are in use")
    return slots.astype(numpy.int64, copy=False)


def texts_of(array: Any) -> Texts:
    """Returns the buffers of an array of texts or binaries, its offset applied, without a copy and without a check."""
    is_large = pyarrow.types.is_large_binary(array.type) or pyarrow.types.is_large_string(array.type)
    kind = numpy.int64 if is_large else numpy.int32
    _, offsets_buffer, data_buffer = array.buffers()
    if not len(array) or offsets_buffer is None:
        return Texts(numpy.zeros(len(array) + 1, kind), numpy.empty(0, numpy.uint8))
    offsets = numpy.frombuffer(offsets_buffer, kind, len(array) + 1, array.offset * kind().itemsize)
    data = numpy.empty(0, numpy.uint8) if data_buffer is None else numpy.frombuffer(data_buffer, numpy.uint8)
    return Texts(offsets, data)


def is_view(kind: Any) -> bool:
    """Returns whether texts or binaries are views, as Polars has them."""
    return bool(pyarrow.types.is_string_view(kind) or pyarrow.types.is_binary_view(kind))


def without_views(array: Any) -> Any:
    """Returns texts or binaries that are views as ones with offsets, and any other array as it is."""
    if not is_view(array.type):
        return array
    return array.cast(pyarrow.large_string() if pyarrow.types.is_string_view(array.type) else pyarrow.large_binary())


def fixed_values(array: Any, word: numpy.dtype[Any]) -> NDArray[Any]:
    """Returns the values of an array of fixed width, without a copy; those of nulls are arbitrary."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return numpy.zeros(len(array), word)
    return numpy.frombuffer(buffer, word, len(array), array.offset * word.itemsize)


def arrow_of(values: NDArray[Any], is_null: NDArray[numpy.bool] | None = None) -> Any:
    """Returns numbers or bools as an Arrow array, null where ``is_null`` is set.

    ``pyarrow.array`` does the same, and imports pandas, if it is installed: 0.2 s where a job is built.
    """
    is_bool = values.dtype == numpy.bool_
    data = numpy.packbits(values, bitorder="little") if is_bool else numpy.ascontiguousarray(values)
    validity = (
        None if is_null is None or not is_null.any() else pyarrow.py_buffer(numpy.packbits(~is_null, bitorder="little"))
    )
    kind = pyarrow.from_numpy_dtype(values.dtype)
    return pyarrow.Array.from_buffers(kind, len(values), [validity, pyarrow.py_buffer(data)])


def _as_binary(array: Any) -> Any:
    kind = pyarrow.types
    if kind.is_binary(array.type) or kind.is_large_binary(array.type):
        return array
    if kind.is_string(array.type):
        return array.view(pyarrow.binary())
    if kind.is_large_string(array.type):
        return array.view(pyarrow.large_binary())
    return None


def _name(value: Any) -> str:
    if isinstance(value, numpy.ndarray):
        return f"an array of {value.dtype} with {value.ndim} dimensions"
    if isinstance(value, pyarrow.Array):
        return f"an Arrow array of {value.type}"
    return type(value).__name__
