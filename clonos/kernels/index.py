"""Index from keys to slots: the interface, and the choice of an implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from clonos.kernels import choice

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

SLOTS_MAX: Final = (1 << 31) - 1
"""Maximum number of keys of an index, because slots are 32-bit numbers."""

type_of_keys = Literal["int64", "bytes"]


class HashIndex(Protocol):
    """Index that gives each distinct key a slot: 0, 1, 2 ... in the order of first occurrence, never used again.

    Keys of an ``int64`` index are numpy int64 arrays. Keys of a ``bytes`` index are Arrow arrays of texts or binaries
    without nulls, and are returned as LargeBinaryArray.
    """

    def __len__(self) -> int:
        """Returns the number of keys."""

    def add(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key; unknown keys get the next slots.

        Raises: OverflowError: the index would have too many keys, and has those that came before;
        ValueError: a key is null; TypeError: the keys are of another kind.
        """

    def find(self, keys: Any) -> NDArray[numpy.int32]:
        """Returns the slot of each key, -1 for an unknown one.

        Raises: ValueError: a key is null; TypeError: the keys are of another kind.
        """

    def keys(self, first: int = 0) -> Any:
        """Returns a copy of the keys of the slots from ``first`` on, in the order of slots.

        Raises: IndexError: ``first`` is not within 0 and the number of keys.
        """

    def keys_at(self, slots: NDArray[Any]) -> Any:
        """Returns the keys of slots, in the order of the argument.

        Raises: IndexError: a slot is not in use.
        """

    @property
    def nbytes(self) -> int:
        """Memory of the index in bytes."""


def new_index(kind: type_of_keys, *, slots_max: int = SLOTS_MAX, room: int = 0) -> HashIndex:
    """Returns an empty index, native where the extension is in use. ``room``: the number of keys that are expected.

    Raises: ValueError, if ``kind`` or ``slots_max`` is not valid.
    """
    if kind not in ("int64", "bytes"):
        raise ValueError(f"an index of {kind!r} is not known: use int64 or bytes")
    if not 0 < slots_max <= SLOTS_MAX:
        raise ValueError(f"an index of {slots_max} slots is not possible: 1 to {SLOTS_MAX} are")
    if choice.native is not None:
        from clonos.kernels.native_index import NativeBytesIndex, NativeInt64Index

        return (NativeInt64Index if kind == "int64" else NativeBytesIndex)(choice.native, slots_max, room)
    from clonos.kernels.numpy_index import NumpyBytesIndex, NumpyInt64Index

    return (NumpyInt64Index if kind == "int64" else NumpyBytesIndex)(slots_max, room)
