"""Targets: objects of the checkpoint store, its chain, the job's record, metadata, snapshots, segments on disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from struct import Struct
from typing import Final

import lz4.frame
import msgspec
import xxhash

from clonos.core.channel.segment import Chunk, Segment
from clonos.core.checkpoint.checkpoint_metadata import (
    METADATA_FORMAT,
    CheckpointMetadata,
    MetadataMalformed,
    TaskEntry,
    decode_metadata,
    encode_metadata,
)
from clonos.core.checkpoint.plan_shape import PlanShape, VertexShape
from clonos.core.checkpoint.snapshot import (
    SNAPSHOT_FORMAT,
    SnapshotMalformed,
    encode_snapshot,
    pieces_of_payload,
    restore_from,
    standby_payload,
)
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.values import ValueMalformed
from clonos.io.local.spill import SegmentDamaged, decode_segment, encode_segment
from clonos.io.store.envelope import OBJECT_FORMAT, ObjectCorrupt, seal, seal_pieces, unseal, unseal_pieces
from clonos.io.store.metadata_chain import CHAIN_FORMAT, ChainEntry, EntryKind
from clonos.io.store.store import STORE_FORMAT, CheckpointStore, NothingToResume, StoredJob
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_errors import StateMalformed
from tests.fuzz.folders import new_folder
from tests.fuzz.target import Target, of_bytes, of_msgpack

FIRST_ENTRY: Final = f"chain/{1:020}"
NAME: Final = "objects/snapshots/1/000000000002-100000001-full"

STATE = StateBackend(None)
STATE.table("count/total").set("word", 17)
SNAPSHOTS = [
    Snapshot(
        SNAPSHOT_FORMAT,
        TaskId(1),
        Incarnation(1 << 32 | 1),
        CheckpointId(number),
        CheckpointId(number - 1) if number > 2 else None,
        ((ChannelId(0), 17), (ChannelId(1), 4)),
        ((ChannelId(5), 21),),
        (ChannelId(1),),
        130,
        1_700_000_000_000_000_000,
        number == 4,
        b"position",
        STATE.changes(full=number == 2),
        number - 1,
        records_in=90,
        calls=(("ask", 3),),
    )
    for number in (2, 3, 4)
]
METADATA = CheckpointMetadata(
    METADATA_FORMAT,
    "job-1234",
    "job",
    1,
    1 << 32 | 1,
    CheckpointId(2),
    CheckpointId(3),
    tuple(
        TaskEntry(
            TaskId(task),
            Incarnation(1 << 32 | 1),
            CheckpointId(2),
            (f"snapshots/{task}/000000000002-100000001-full",),
            30,
            False,
            ((CheckpointId(2), b"part"),),
        )
        for task in range(3)
    ),
    PlanShape(128, (VertexShape("lines", 3, ("a source",), (), (), 3),), ()),
)


def targets() -> list[Target]:
    """Targets of this file."""
    snapshots = [encode_snapshot(snapshot) for snapshot in SNAPSHOTS]
    payloads = [standby_payload([snapshots[0], b"more"]), standby_payload([])]
    return [
        *_envelopes(),
        *_records(),
        Target("metadata", of_msgpack([encode_metadata(METADATA)]), _read_metadata, (MetadataMalformed,), share=30),
        Target(
            "snapshots", of_msgpack(snapshots), _restore, (SnapshotMalformed, StateMalformed, ValueMalformed), share=30
        ),
        Target(
            "standby payloads", of_msgpack(payloads), lambda data: pieces_of_payload(data, NAME), (SnapshotMalformed,)
        ),
        *_segments(),
    ]


def _read_metadata(data: bytes) -> None:
    metadata = decode_metadata(data, "entry 3")
    for name in metadata.objects():
        assert ".." not in name.split("/"), name
        assert not name.startswith("/"), name


def _restore(data: bytes) -> None:
    restore_from([(NAME, [data])], StateImage())


# ------------------------------------------------------------------ envelopes

_FACTS: Final = Struct("<6sBBQ")
_PIECE: Final = Struct("<BII")


def _envelopes() -> list[Target]:
    contents = [b"", b"short", bytes(range(256)) * 20, encode_snapshot(SNAPSHOTS[0])]
    objects = [seal(content, NAME) for content in contents]
    rows = [b"".join(seal_pieces([content, content[:7]], NAME)) for content in contents]
    declared = (ObjectCorrupt,)
    return [
        Target("objects", _resealing(objects, _reseal), lambda data: unseal(data, NAME), declared, share=20),
        Target("objects of pieces", _resealing([*rows, *objects], _reseal_pieces), _read_pieces, declared, share=20),
    ]


def _read_pieces(data: bytes) -> None:
    for piece in unseal_pieces(data, NAME):
        assert len(piece) >= 0


def _resealing(samples: list[bytes], reseal: Callable[[Random, bytes], bytes]) -> Callable[[Random], bytes]:
    """Mostly with checksums that fit."""
    mutated = of_bytes(samples)

    def make(random: Random) -> bytes:
        data = mutated(random)
        return reseal(random, data) if random.random() < 0.8 else data

    return make


def _reseal(random: Random, data: bytes) -> bytes:
    """The head with a checksum of what follows it; now and then a frame of LZ4 that claims another length."""
    if len(data) < _FACTS.size + 16:
        return data
    facts, stored = data[: _FACTS.size], data[_FACTS.size + 16 :]
    if random.random() < 0.3:
        stored = len(NAME).to_bytes(2, "little") + NAME.encode() + _frame(random)
        facts = _FACTS.pack(b"clonos", OBJECT_FORMAT, 1, random.choice((len(stored), 0, 5000, 1 << 33, 1 << 34)))
    digest = xxhash.xxh3_128(facts)
    digest.update(stored)
    return facts + digest.digest() + stored


def _reseal_pieces(random: Random, data: bytes) -> bytes:
    """Gives each piece a valid checksum, as far as pieces can be recognised."""
    begin = b"".join(seal_pieces((), NAME))[: 7 + 2 + len(NAME) + 8]
    if data[: len(begin)] != begin:
        return _reseal(random, data)
    made, at, count = bytearray(begin), len(begin), 0
    while at + _PIECE.size + 8 <= len(data):
        facts = data[at : at + _PIECE.size]
        kind, stored_bytes, content_bytes = _PIECE.unpack(facts)
        stored = data[at + _PIECE.size + 8 :][:stored_bytes]
        at += _PIECE.size + 8 + stored_bytes
        if kind == 1 and random.random() < 0.5:
            stored = _frame(random)
            facts = _PIECE.pack(1, len(stored), random.choice((content_bytes, 0, (1 << 32) - 1)))
        made += facts + xxhash.xxh3_64_intdigest(stored, xxhash.xxh3_64_intdigest(facts, count)).to_bytes(8, "little")
        made += stored
        count += 1
    return bytes(made + data[at:])


def _frame(random: Random) -> bytes:
    """A frame of LZ4; its head may claim any length."""
    content = random.randbytes(random.randrange(30)) * random.choice((1, 3, 100))
    frame = bytearray(lz4.frame.compress(content, store_size=True))
    if frame[4] & 8 and random.random() < 0.6:
        frame[6:14] = random.choice((0, 1, 1 << 20, 1 << 36, 1 << 40, 1 << 62, (1 << 64) - 1)).to_bytes(8, "little")
        frame[14] = xxhash.xxh32_intdigest(bytes(frame[4:14])) >> 8 & 0xFF
    if random.random() < 0.3:
        frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)
    return bytes(frame)


# ------------------------------------------------------------------ records of the store


def _records() -> list[Target]:
    entries = [
        ChainEntry(CHAIN_FORMAT, EntryKind.TERM, "job-1234", 1, b"12345678", 0, b"", 0),
        ChainEntry(CHAIN_FORMAT, EntryKind.CHECKPOINT, "job-1234", 1, b"12345678", 2, encode_metadata(METADATA), 3),
    ]
    records = [StoredJob(STORE_FORMAT, "job", "job-1234", {"lines": (b"split", b"other"), "": ()}, "7", "", "", "")]
    encode = msgspec.msgpack.encode
    entry, record = encode(entries[1]), encode(records[0])
    declared = (ObjectCorrupt, NothingToResume)
    return [
        Target(
            "chain",
            of_msgpack([encode(each) for each in entries], sealed=partial(seal, name=FIRST_ENTRY)),
            _Store(job=seal(record, "job")),
            declared,
            share=5,
        ),
        Target(
            "job records",
            of_msgpack([record], sealed=partial(seal, name="job")),
            _Store(entry=seal(entry, FIRST_ENTRY)),
            declared,
            share=5,
        ),
    ]


class _Store:
    """Reads a store in which one object is the input."""

    def __init__(self, job: bytes | None = None, entry: bytes | None = None) -> None:
        self._root = new_folder()
        self._job, self._entry = job, entry

    def __call__(self, data: bytes) -> None:
        chain = self._root / "chain"
        chain.mkdir(exist_ok=True)
        (self._root / "job").write_bytes(self._job or data)
        (self._root / FIRST_ENTRY).write_bytes(self._entry or data)
        store = CheckpointStore(str(self._root))
        store.find_job()
        store.checkpoints()
        store.checkpoint_metadata()
        store.acquire_term()
        (chain / f"{2:020}").unlink()


# ------------------------------------------------------------------ segments


_CONTENTS: Final[list[bytes]] = []
"""What is in the frames of the samples."""


def _segments() -> list[Target]:
    chunks = [
        Chunk(0, ElementKind.ROWS, 3, CheckpointId(0), b"abc"),
        Chunk(3, ElementKind.BARRIER, 1, CheckpointId(1), b""),
        Chunk(4, ElementKind.COLUMNS, 9, CheckpointId(0), b"x" * 90),
    ]
    segment = Segment(7, None, chunks)  # type: ignore[arg-type]
    files = [b"".join(encode_segment(7, payloads)) for payloads in (segment.payloads(), [], [b"x" * 4000] * 3)]
    _CONTENTS.extend(lz4.frame.decompress(file[16:]) for file in files)

    def read(data: bytes) -> None:
        decode_segment(7, data, "/spill/00000007.segment")

    return [Target("spilled segments", _resealing(files, _reseal_segment), read, (SegmentDamaged,), share=20)]


def _reseal_segment(random: Random, data: bytes) -> bytes:
    """Mutates the content of the frame too."""
    body = data[8:]
    kind = random.random()
    if kind < 0.3:
        frame = _frame(random)
        body = random.choice((len(frame), 30, 1 << 33, 1 << 62)).to_bytes(8, "little") + frame
    elif kind < 0.8:
        content = bytearray(random.choice(_CONTENTS))
        at = random.randrange(len(content) + 1)
        content[at : at + random.choice((0, 1, 4))] = random.randbytes(random.choice((1, 4)))
        body = len(content).to_bytes(8, "little") + lz4.frame.compress(bytes(content), store_size=False)
    return xxhash.xxh3_64_intdigest(body).to_bytes(8, "little") + body


__all__ = ["targets"]
