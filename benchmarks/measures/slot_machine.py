"""Benchmark: processor time of the machine of a slot, for a batch that arrives and for a step that its task emits.

Also of what the runtime does to a batch of columns between two steps: keys, partition, encoding, decoding, counts. One
process, one thread, no sockets and no user code: the rest of a step depends on the job. The least of several rounds
counts, because other processes can only add to it. To compare two versions, run it in both checkouts in turn.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, Final

import numpy
import pyarrow

from benchmarks.harness.ab_session import Session
from benchmarks.workloads.word_job import split_words
from benchmarks.workloads.words import pool
from clonos.core.channel.credit import cost_bytes
from clonos.core.log import determinants
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import COORDINATOR, ChannelId, CheckpointId, Incarnation, SlotId, TaskId, log_of, view_number
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.ports.operator_chain import Mirror
from clonos.core.ports.slot_effects import PutCommand, SendMessage
from clonos.core.ports.task_port import Output, TaskEmission
from clonos.core.slot.slot import Slot
from clonos.core.slot.slot_events import Event, LogEndReached, MessageReceived, StepEmitted
from clonos.core.values import decode_columns, encode_columns
from clonos.core.values.column_keys import KeyGroups, split_columns
from clonos.core.values.keys import Router
from clonos.core.wire.channel_messages import Batch, ChannelHandshake
from clonos.core.wire.control_messages import Placement, SlotAddress, View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.message_codec import decode_message, encode_message
from clonos.kernels import grouped
from clonos.kernels.packed_keys import KeyIndex

ROUNDS: Final = 15
EVENTS: Final = 10_000
RECORDS: Final = 10
PAYLOAD: Final = bytes(100)
CREDIT_BYTES: Final = 1 << 50
COLUMN_LINES: Final = 1_800
"""Lines of ten words in a batch of columns, half of which each of two tasks receives."""

COLUMN_ROUNDS: Final = 5
"""Rounds over the batch of columns for each round of the machine, which takes longer."""

VIEW: Final = view_number(1, 1)
LIFE: Final = Incarnation(VIEW)
TASK: Final = TaskId(1)
INPUT, OUTPUT = ChannelId(0), ChannelId(1)
PLAN: Final = Plan(
    "chain",
    (Vertex("source", 1, is_source=True), Vertex("middle", 1), Vertex("last", 1)),
    (Edge(0, 1, Partitioning.FORWARD, 0), Edge(1, 2, Partitioning.FORWARD, 0)),
)
STEP: Final = determinants.step(0, RECORDS)


class _NoMirror(Mirror):
    def apply(self, changes: bytes | memoryview) -> None:
        """Takes nothing in."""


class MeasuredSlot:
    """Slot with the middle task of a chain, which is live. Effects are performed as far as they cost the machine."""

    def __init__(self) -> None:
        self.slot = Slot(SlotId(2), PLAN, Options(), lambda _task: _NoMirror())
        self.sent = self.delivered = 0
        homes = [SlotId(number + 1) for number in PLAN.tasks]
        placements = tuple(
            Placement(task, LIFE, homes[task], CheckpointId(0), (), 0, True, False, (homes[task - 1],), ())
            for task in PLAN.tasks
        )
        addresses = tuple(SlotAddress(slot, f"domain-{slot}", "", "", b"") for slot in homes)
        self.handle(MessageReceived(COORDINATOR, View(VIEW, 1, "job", addresses, placements)))
        handshake = ChannelHandshake(OUTPUT, VIEW, LIFE, LIFE, 1, 0, 0, CREDIT_BYTES, ())
        self.handle(MessageReceived(homes[2], handshake))
        hosted = self.slot.hosted[TASK]
        self.thread, self.session = hosted.thread, hosted.inputs.receivers[INPUT].session
        self.handle(LogEndReached(TASK, self.thread, {OUTPUT: 0}))

    def handle(self, event: Event) -> None:
        """Steps the machine and encodes what it sends."""
        for effect in self.slot.step(event):
            if type(effect) is SendMessage:
                encode_message(effect.message)
                self.sent += 1
            elif type(effect) is PutCommand:
                self.delivered += 1

    def batch(self, number: int) -> bytes:
        """Returns a batch of the source, with the log entry of the step that it comes from."""
        delta = Delta(log_of(TaskId(0)), number * len(STEP), not number, STEP)
        head = INPUT, LIFE, LIFE, self.session, number, number * RECORDS
        return encode_message(Batch(*head, ElementKind.ROWS, RECORDS, CheckpointId(0), (delta,)))

    def step(self, number: int) -> StepEmitted:
        """Returns the step over a batch."""
        cost = cost_bytes(RECORDS, len(PAYLOAD))
        output = Output(OUTPUT, ElementKind.ROWS, RECORDS, CheckpointId(0), PAYLOAD)
        end = (number + 1) * RECORDS
        emission = TaskEmission(STEP, (output,), ((INPUT, end, cost),), records_in=end, cost_bytes=cost)
        return StepEmitted(TASK, self.thread, emission)


def run(session: Session) -> None:
    """Measures batches and steps in turn, as they come."""
    rounds = 2 if session.is_quick else ROUNDS
    batches_us, steps_us = zip(*[_round() for _ in range(rounds)], strict=True)
    session.figure("a batch that arrives", min(batches_us), "us, least")
    session.figure("a step that is emitted", min(steps_us), "us, least")
    batch = split_words(pyarrow.record_batch({"line": pool()[:COLUMN_LINES]}))
    rounds_ns = [_columns_ns(batch) for _ in range(COLUMN_ROUNDS * rounds)]
    for stage in rounds_ns[0]:
        session.figure(f"a batch of columns: {stage}", min(each[stage] for each in rounds_ns), "ns a word, least")


def _columns_ns(batch: Any) -> dict[str, float]:
    """Measures each stage of a batch of words that travels by key to one of two tasks and is counted there."""
    router, known, found = Router(2, PLAN.max_parallelism), KeyGroups(PLAN.max_parallelism), {}

    def timed(stage: str, work: Callable[[], Any], words: int) -> Any:
        begun_ns = time.thread_time_ns()
        result = work()
        found[stage] = (time.thread_time_ns() - begun_ns) / words
        return result

    known.of([batch.column("word")])  # a sender knows most of the words
    groups = timed("key groups", lambda: known.of([batch.column("word")]), batch.num_rows)
    parts = timed("partition", lambda: split_columns(router, batch, groups), batch.num_rows)
    encoded = timed("encode", lambda: [encode_columns(part) for part in parts], batch.num_rows)
    decoded = timed("decode", lambda: [decode_columns(data) for data in encoded], batch.num_rows)
    index = KeyIndex([pyarrow.string()])
    index.add([batch.column("word")])  # a receiver too
    slots = timed("keys", lambda: index.add([decoded[0].column("word")]), decoded[0].num_rows)
    totals = numpy.zeros(len(index), numpy.int64)
    timed("running counts", lambda: grouped.running_counts(totals, slots), len(slots))
    return found


def _round() -> tuple[float, float]:
    measured = MeasuredSlot()
    handle, source = measured.handle, SlotId(1)
    batches = [measured.batch(number) for number in range(EVENTS)]
    steps = [measured.step(number) for number in range(EVENTS)]

    def receive() -> None:
        for encoded in batches:
            handle(MessageReceived(source, decode_message(encoded, "the source"), PAYLOAD))

    def emit() -> None:
        for step in steps:
            handle(step)

    batch_us = _cost_us(receive)
    sent = measured.sent
    step_us = _cost_us(emit)
    assert measured.delivered == EVENTS, measured.delivered
    assert measured.sent - sent >= EVENTS, measured.sent
    return batch_us, step_us


def _cost_us(work: Callable[[], None]) -> float:
    gc.collect()
    begun_ns = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begun_ns) / EVENTS / 1e3
