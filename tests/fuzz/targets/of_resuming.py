"""Targets: what a job resumes from (metadata, positions of sources, prepared parts), and segments read from disk."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.driver_outputs import collect
from clonos.connectors.in_memory import values
from clonos.core.channel.segment import Chunk, Segment
from clonos.core.checkpoint.checkpoint_metadata import (
    MetadataMalformed,
    PlanChanged,
    TaskEntry,
    check_resumable,
    decode_metadata,
    encode_metadata,
    metadata_of_start,
)
from clonos.core.coordinator.coordinator_events import MetadataWritten, OutputCommitted, WriteOutcome
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import InternalError
from clonos.core.model.ids import CheckpointId
from clonos.core.ports.operator_chain import NothingToRead, StepFailed
from clonos.core.values import ValueMalformed, encode_rows
from clonos.operators.chain_outputs import CombinedSinks
from clonos.operators.connector_contract import WriterContext
from clonos.operators.journal_source import JournalHead
from clonos.operators.split_source import PositionMalformed, SourceChanged
from tests.fuzz.target import Target, of_bytes, of_msgpack
from tests.harnesses.coordinator_harness import CoordinatorHarness, chain_plan
from tests.unit.operators.test_source import head

JOB: Final = "job-1"


def targets() -> list[Target]:
    """Targets of this file."""
    return [_resumed(), _positions(), _journals(), *_parts(), _segments()]


def _resumed() -> Target:
    """A coordinator that begins with metadata of its plan, and completes a checkpoint."""
    plan = chain_plan()
    start = metadata_of_start(plan, JOB, 1)
    entries = tuple(
        TaskEntry(task, start.tasks[0].incarnation, CheckpointId(3), ("a", "b"), 17, False, ((CheckpointId(3), b"x"),))
        for task in plan.tasks
    )
    later = msgspec.structs.replace(
        start, tasks=entries, checkpoint=CheckpointId(3), highest_checkpoint=CheckpointId(4)
    )
    final = msgspec.structs.replace(later, tasks=tuple(msgspec.structs.replace(entry, final=True) for entry in entries))

    def resume(data: bytes) -> None:
        metadata = decode_metadata(data, "entry")
        check_resumable(plan, metadata)
        if metadata.job_id != JOB:
            return
        harness = CoordinatorHarness(plan)
        harness.begin(resume=metadata, term=2)
        harness.do(OutputCommitted(metadata.checkpoint))
        for number in range(1, 7):
            harness.register(number, "ab"[number % 2])
        harness.tick(6_000, step_ms=500)
        if harness.coordinator.view is not None and harness.pending():
            harness.acknowledge(harness.pending()[-1])
            harness.do(MetadataWritten(CheckpointId(harness.coordinator.pending[-1]), WriteOutcome.DURABLE))
            harness.tick(1_000, step_ms=500)

    samples = [encode_metadata(each) for each in (start, later, final)]
    return Target("resumed metadata", of_msgpack(samples), resume, (MetadataMalformed, PlanChanged), share=2)


# ------------------------------------------------------------------ sources


def _positions() -> Target:
    source = values(range(40))
    splits = source.splits(3)
    samples = []
    for steps in (0, 3, 20):
        made, _ = head(source, splits)
        for _ in range(steps):
            found = made.poll(4)
            if not isinstance(found, NothingToRead):
                made.read(*found)
        samples.append(made.position())
        made.close()

    def restore(data: bytes) -> None:
        made, _ = head(source, splits)
        try:
            made.restore(data)
            for _ in range(5):
                found = made.poll(4)
                if isinstance(found, NothingToRead):
                    break
                made.read(*found)
            made.position()
        except StepFailed as failed:
            raise failed.__cause__ or failed from None
        finally:
            made.close()

    declared = (PositionMalformed, SplitMalformed, InvalidConnector, SourceChanged)
    return Target("positions", of_msgpack(samples), restore, declared)


class _Lines:
    """A pushed source of lines."""

    def cut(self, data: bytes) -> list[bytes]:
        return [line + b"\n" for line in data.split(b"\n")[:-1]]

    def decode(self, records: list[bytes]) -> list[bytes]:
        return records


def _journals() -> Target:
    pushed: Any = _Lines()
    made = JournalHead("lines", pushed)
    samples = [made.position()]
    made.feed(b"one\ntwo\n")
    samples.append(made.position())
    made.feed(b"three\n\x00")
    samples.append(made.position())

    def restore(data: bytes) -> None:
        head = JournalHead("lines", pushed)
        head.restore(data)
        head.poll(3)
        head.position()

    return Target("positions of journals", of_msgpack(samples), restore, (PositionMalformed,))


# ------------------------------------------------------------------ sinks


def _parts() -> list[Target]:
    writer = collect().writer()
    writer.open(WriterContext(JOB, "count/0", 0, 1, 1))
    writer.write([("word", 1), ("other", 2)])
    part = writer.prepare(1)
    assert part is not None
    numbered = msgspec.msgpack.encode((1, part))

    def commit(data: bytes) -> None:
        sink = collect()
        sink.prepare_output(JOB, resume=False, overwrite=False)
        sink.commit(JOB, 1, [data])

    def commit_several(data: bytes) -> None:
        sinks = (collect(), collect())
        several = CombinedSinks(sinks)
        several.prepare_output(JOB, resume=False, overwrite=False)
        several.commit(JOB, 1, [data])

    declared = (InternalError, ValueMalformed)
    return [
        Target("parts of a sink", of_msgpack([part, encode_rows([1, 2])]), commit, declared),
        Target("parts of several sinks", of_msgpack([numbered]), commit_several, declared),
    ]


# ------------------------------------------------------------------ segments


def _segments() -> Target:
    """Result of ``decode_segment`` as the payloads of a segment."""
    chunks = [
        Chunk(5, ElementKind.ROWS, 3, CheckpointId(0), b"abc"),
        Chunk(8, ElementKind.BARRIER, 1, CheckpointId(1), b""),
        Chunk(9, ElementKind.COLUMNS, 9, CheckpointId(0), b"x" * 20),
    ]
    payloads = Segment(7, None, chunks).payloads()  # type: ignore[arg-type]
    heads = of_msgpack(payloads[:1])
    others = of_bytes(payloads[1:])

    def make(random: Random) -> bytes:
        made = [heads(random) if random.random() < 0.8 else payloads[0], *payloads[1:]]
        if random.random() < 0.3:
            made[random.randrange(len(made))] = others(random)
        return msgspec.msgpack.encode(made[: random.choice((0, 1, 3, 4, 4, 4, 4))])

    return Target("payloads of a segment", make, partial(_load, chunks), ())


def _load(chunks: list[Chunk], data: bytes) -> None:
    segment = Segment(7, None, chunks)  # type: ignore[arg-type]
    segment.chunks = []
    if segment.load(msgspec.msgpack.decode(data, type=list[bytes])):
        assert [chunk.first_seq for chunk in segment.chunks] == [5, 8, 9]
        assert [len(chunk.payload) for chunk in segment.chunks] == [3, 0, 20]
