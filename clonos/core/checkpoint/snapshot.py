"""Snapshots as objects of the checkpoint store: encoding, chains, and the restoring of state from them (protocol 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import structs

from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import CheckpointId
from clonos.core.ports.operator_chain import Mirror
from clonos.core.ports.task_snapshot import Snapshot, StateSource
from clonos.core.wire.decoding import DECODE_ERRORS, check_format

SNAPSHOT_FORMAT = 4

MOVED: Final = "moved"
"""Kind, in the name of an object, of a snapshot that takes its state from tasks of another plan."""


class SnapshotMalformed(EnvironmentFault):
    """Error for an object of the store that is no valid snapshot."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the snapshot {self.name} is corrupt: {self.reason}."
            " Restore the object from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


STANDBY_BYTES_MAX = 256 << 20
"""Maximum size of a snapshot that is sent to standbys. They fetch a larger one from the store when its checkpoint
completes.
"""


class RestoredState(NamedTuple):
    """Result of restoring a chain of snapshots: the last one, without its changes, and the state."""

    snapshot: Snapshot
    mirror: Mirror


ReadObject = Callable[[str], Iterable[bytes | memoryview]]
"""Returns the pieces of an object of a store."""

RestoreSource = Callable[[StateSource, tuple[str, ...], Callable[[], Mirror]], RestoredState]


class _Format(msgspec.Struct, frozen=True, array_like=True):
    """Snapshot of any format."""

    format: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Snapshot)
_format_decoder = msgspec.msgpack.Decoder(_Format)

_pieces_decoder = msgspec.msgpack.Decoder(tuple[bytes, ...])

encode_snapshot = _encoder.encode


def restore_from(
    objects: Iterable[tuple[str, Iterable[bytes | memoryview]]], mirror: Mirror, begun: Snapshot | None = None
) -> RestoredState:
    """Applies a chain of objects, oldest first, to an empty mirror, or the rest of the chain to the mirror that has the
    objects up to the snapshot ``begun``.

    Each object is a name and its pieces: first a snapshot, then further changes.
    """
    snapshot = begun
    chain_length = 0 if begun is None else begun.chain_length
    for name, pieces in objects:
        chain_length += 1
        rest = iter(pieces)
        snapshot = decode_snapshot(next(rest, b""), name)
        if snapshot.changes:
            mirror.apply(snapshot.changes)
        for changes in rest:
            mirror.apply(changes)
    assert snapshot is not None, "a chain has at least one object"
    return RestoredState(structs.replace(snapshot, changes=b"", chain_length=chain_length), mirror)


class StateUnion(Protocol):
    """State of a task that takes it from tasks of another plan, one after the other."""

    def new_mirror(self, source: StateSource) -> Mirror:
        """Returns an empty mirror for the state of a source."""

    def union_of(self, source: StateSource) -> StateUnion:
        """Returns the union for a source that has itself not stored yet what it takes from tasks of another plan."""

    def add(self, source: StateSource, mirror: Mirror) -> None:
        """Takes over what the task takes of a source."""

    def united(self) -> Mirror:
        """Returns the state of the task."""


def is_moved(name: str) -> bool:
    """Returns whether an object is the snapshot of a task that takes its state from tasks of another plan."""
    return name.partition(".")[0].endswith(f"-{MOVED}")


def restore_moved(
    names: Sequence[str],
    read: ReadObject,
    unite: Callable[[Snapshot], StateUnion],
    restore: RestoreSource | None = None,
) -> RestoredState:
    """Restores a state from the objects of its sources, one source after the other, and the snapshot that names these.

    ``restore`` returns the state of a source from its chain of objects and an empty mirror.
    """
    head = decode_snapshot(next(iter(read(names[-1])), b""), names[-1])
    union, rest = unite(head), iter(names)
    for source in head.sources:
        chain = tuple(islice(rest, source.objects))
        if is_moved(chain[-1]):
            mirror = restore_moved(chain, read, lambda _, source=source: union.union_of(source)).mirror  # type: ignore[misc]
        elif restore is not None:
            mirror = restore(source, chain, partial(union.new_mirror, source)).mirror
        else:
            mirror = restore_from(((name, read(name)) for name in chain), union.new_mirror(source)).mirror
        union.add(source, mirror)
    return RestoredState(head, union.united())


def standby_payload(pieces: Sequence[bytes]) -> bytes:
    """Returns the pieces of a snapshot as sent to a standby.

    Without pieces it is empty, and the standby fetches them.
    """
    return _encoder.encode(pieces) if pieces else b""


def pieces_of_payload(payload: bytes | memoryview, name: str) -> tuple[bytes, ...]:
    """Returns the pieces that ``standby_payload`` was given.

    Raises: SnapshotMalformed, if the payload is no list of pieces.
    """
    try:
        return _pieces_decoder.decode(payload)
    except DECODE_ERRORS as error:
        raise SnapshotMalformed(name, str(error)) from None


def decode_snapshot(data: bytes | memoryview, name: str) -> Snapshot:
    """Returns the snapshot in ``data``, whose checksum the store has verified.

    Raises: SnapshotMalformed, if the bytes are no snapshot. FormatUnknown: another version wrote them.
    """
    try:
        # Check the format first: fields of another format may look malformed to this schema.
        check_format(f"the snapshot {name}", _format_decoder.decode(data).format, SNAPSHOT_FORMAT)
        return _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise SnapshotMalformed(name, str(error)) from None


class SnapshotChain:
    """Chain of the snapshots that one incarnation takes, from the restored one on: what each builds on, and how many
    restore it (protocol 5)."""

    __slots__ = ("_previous", "length")

    def __init__(self, restored: Snapshot | None) -> None:
        self._previous = restored.checkpoint if restored and not restored.sources else None
        self.length = restored.chain_length if restored else 0  # number of objects that restore the latest snapshot

    @property
    def is_empty(self) -> bool:
        """Whether the next snapshot is the first and must be full."""
        return self._previous is None

    def is_long(self, length_max: int) -> bool:
        """Returns whether a new chain is due, because restoring the latest snapshot takes ``length_max`` objects."""
        return not self.is_empty and self.length >= length_max

    def append(self, checkpoint: CheckpointId, is_whole: bool) -> CheckpointId | None:
        """Adds a snapshot and returns the checkpoint that it builds on.

        ``is_whole``: the whole state is stored beside it, and later snapshots build on that.
        """
        is_base = self.is_empty or is_whole
        previous, self._previous = self._previous, checkpoint
        self.length = 1 if is_base else self.length + 1
        return previous
