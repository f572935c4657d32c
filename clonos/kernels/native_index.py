"""Indexes of the extension, with the interface of ``HashIndex``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy
import pyarrow

from clonos.kernels.arrays import Texts, as_binary_keys, as_int64_keys, as_slots, texts_of

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

SEED: Final = hash("clonos.kernels")
"""Seed of the hashes, random unless PYTHONHASHSEED is set, so that nobody can choose keys that collide. No result
depends on it."""


class NativeIndex:
    """Base: an index of the extension."""

    def __init__(self, index: Any) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    @property
    def nbytes(self) -> int:
        """Memory of the index in bytes."""
        return self._index.nbytes  # type: ignore[no-any-return]


class NativeInt64Index(NativeIndex):
    """Index of int64 keys."""

    def __init__(self, native: ModuleType, slots_max: int, room: int = 0) -> None:
        super().__init__(native.Int64Index(slots_max, SEED, room))

    def find(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key, -1 for an unknown one."""
        keys = as_int64_keys(keys)
        slots = numpy.empty(len(keys), numpy.int32)
        self._index.find(keys, slots)
        return slots

    def add(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key; unknown keys get the next slots."""
        keys = as_int64_keys(keys)
        slots = numpy.empty(len(keys), numpy.int32)
        self._index.add(keys, slots)
        return slots

    def keys(self, first: int = 0) -> NDArray[numpy.int64]:
        """Returns a copy of the keys of the slots from ``first`` on."""
        keys = numpy.empty(max(0, len(self._index) - first), numpy.int64)
        self._index.copy_keys(first, keys)
        return keys

    def keys_at(self, slots: NDArray[Any]) -> NDArray[numpy.int64]:
        """Returns the keys of slots."""
        places = numpy.ascontiguousarray(as_slots(slots, len(self._index)))
        keys = numpy.empty(len(places), numpy.int64)
        self._index.keys_at(places, keys)
        return keys


class NativeBytesIndex(NativeIndex):
    """Index of texts and binaries."""

    def __init__(self, native: ModuleType, slots_max: int, room: int = 0) -> None:
        super().__init__(native.BytesIndex(slots_max, SEED, room))

    def find(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key, -1 for an unknown one."""
        texts, slots = _texts_and_slots(keys)
        self._index.find(texts.offsets, texts.data, texts.is_large, slots)
        return slots

    def add(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key; unknown keys get the next slots."""
        texts, slots = _texts_and_slots(keys)
        self._index.add(texts.offsets, texts.data, texts.is_large, slots)
        return slots

    def keys(self, first: int = 0) -> Any:
        """Returns the keys of the slots from ``first`` on."""
        return _large_binary(*self._index.keys_from(first))

    def keys_at(self, slots: NDArray[Any]) -> Any:
        """Returns the keys of slots."""
        places = numpy.ascontiguousarray(as_slots(slots, len(self._index)))
        return _large_binary(*self._index.keys_at(places))


def _texts_and_slots(keys: Any) -> tuple[Texts, NDArray[numpy.int32]]:
    keys = as_binary_keys(keys)
    return texts_of(keys), numpy.empty(len(keys), numpy.int32)


def _large_binary(offsets: bytes, data: bytes) -> Any:
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
    return pyarrow.LargeBinaryArray.from_buffers(pyarrow.large_binary(), len(offsets) // 8 - 1, buffers)
