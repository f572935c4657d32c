"""Incarnations of one task behind a scripted port: the test sets arrival, clock, random numbers and death."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, NamedTuple, NoReturn

import pyarrow as pa

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.checkpoint.snapshot import decode_snapshot, encode_snapshot
from clonos.core.log.determinants import LogReader
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.watermark import Watermark, decode_watermark, encode_watermark
from clonos.core.ports.task_port import (
    Activation,
    Command,
    Delivered,
    Finished,
    PartReported,
    TaskEmission,
    TaskPort,
    TaskStopped,
    Triggered,
)
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.task.task import Task
from clonos.core.values import encode_columns, encode_rows
from clonos.core.values.elements import decode_records
from tests.harnesses.recording_chain import RecordingChain, RecordingMirror

DAY_NS = 86_400 * 10**9
FIRST_INSTANT_NS = 1_700_000_000 * 10**9


class Element(NamedTuple):
    """Content of a channel: a row, a row of columns (``n``), a barrier (its checkpoint), a watermark, or the end."""

    kind: ElementKind
    content: Any


def rows(*values: Any) -> list[Element]:
    return [Element(ElementKind.ROWS, value) for value in values]


def columns(*values: int) -> list[Element]:
    return [Element(ElementKind.COLUMNS, value) for value in values]


def barrier(checkpoint: int) -> list[Element]:
    return [Element(ElementKind.BARRIER, checkpoint)]


def watermark(content: Watermark) -> list[Element]:
    return [Element(ElementKind.WATERMARK, content)]


END = [Element(ElementKind.END, 0)]


def encoded(elements: Sequence[Element]) -> bytes:
    kind = elements[0].kind
    if kind is ElementKind.ROWS:
        return encode_rows([element.content for element in elements])
    if kind is ElementKind.COLUMNS:
        return encode_columns(pa.RecordBatch.from_pydict({"n": [element.content for element in elements]}))
    return encode_watermark(elements[0].content) if kind is ElementKind.WATERMARK else b""


def decoded(kind: ElementKind, checkpoint: int, payload: bytes | memoryview) -> list[tuple[ElementKind, int, str]]:
    """Elements of an output, each with its exact content."""
    if kind.is_data:
        return [(kind, 0, repr(record)) for record in decode_records(kind, payload)]
    return [(kind, checkpoint, str(decode_watermark(payload)) if kind is ElementKind.WATERMARK else "")]


@dataclass
class Job:
    """A task under test and all its input."""

    plan: Plan
    task: TaskId
    new_chain: Callable[[Random], RecordingChain]
    inputs: dict[int, list[Element]] = field(default_factory=dict)  # per channel, from its first element on
    triggers: tuple[int, ...] = ()
    options: Options = field(default_factory=lambda: Options(step_records_first=4))


@dataclass
class Start:
    """Start of an incarnation: its log, snapshot and mode."""

    log: bytes = b""
    snapshots: Sequence[Snapshot] = ()  # a chain, oldest (full) first; none at the job's start
    offset_bytes: int = 0
    is_single_step: bool = False
    journal: bytes = b""

    @property
    def snapshot(self) -> Snapshot | None:
        return decode_snapshot(encode_snapshot(self.snapshots[-1]), "") if self.snapshots else None

    @property
    def mirror(self) -> RecordingMirror | None:
        if not self.snapshots:
            return None
        mirror = RecordingMirror()
        for snapshot in self.snapshots:
            mirror.apply(snapshot.changes)
        return mirror


class ScriptedTask(TaskPort):
    """One incarnation, its world, and afterwards its history."""

    def __init__(self, job: Job, number: int, start: Start | None = None, dies_at_emission: int = -1) -> None:
        self.job, self.number, self.start = job, number, start or Start()
        self.rng = Random(number)
        self.log = b""  # what this life has added
        self.outputs: dict[ChannelId, list[tuple[ElementKind, int, str]]] = {}
        self.first_seqs = dict(self.start.snapshots[-1].outputs) if self.start.snapshots else {}
        self.snapshots: list[Snapshot] = []
        self.wholes: dict[int, tuple[bytes, ...]] = {}
        self.performed: list[str] = []
        self.replicated_to: list[int] = []  # what calls with an effect have waited for
        self.live_at: dict[ChannelId, int] | None = None
        self.accepted = ""  # in what the replay has differed
        self.outputs_when_live: dict[ChannelId, int] = {}
        self.emissions = self.emissions_when_live = 0
        self.events: list[str] = []
        self._dies_at_emission = dies_at_emission
        self._now_ns = FIRST_INSTANT_NS - number * DAY_NS  # after that of all earlier lives
        first = dict(self.start.snapshots[-1].inputs) if self.start.snapshots else {}
        self._next = {channel: first.get(ChannelId(channel), 0) for channel in job.inputs}
        self._triggers = list(job.triggers)
        self._answers: list[Finished | PartReported] = []
        self.task = Task(
            job.plan,
            job.task,
            job.new_chain(self.rng),
            self,
            Activation(
                Incarnation(number + 1),
                self.start.snapshot,
                self.start.mirror,
                self.start.log,
                self.start.offset_bytes,
                1,
                self.start.is_single_step,
                "job",
                self.start.journal,
            ),
            job.options,
        )

    def run(self) -> ScriptedTask:
        """Runs the task until nothing more can happen, or until it dies."""
        try:
            self.task.run()
        except TaskStopped:
            pass
        return self

    @property
    def whole_log(self) -> bytes:
        """The log that the next incarnation would gather if nothing were lost."""
        return self.start.log + self.log

    # ------------------------------------------------------------------ arrival

    def receive(self, until_ns: int | None) -> Command | None:
        if self._dies_at_emission >= 0 and self.emissions >= self._dies_at_emission:
            raise TaskStopped
        can_come = [channel for channel, elements in self.job.inputs.items() if self._next[channel] < len(elements)]
        if until_ns == 0:
            return self._arrive(can_come) if self.rng.random() < 0.4 else None
        if until_ns is not None and (self.rng.random() < 0.3 or not (can_come or self._triggers or self._answers)):
            self._now_ns = max(self._now_ns, until_ns)
            return None
        command = self._arrive(can_come)
        if command is None:
            raise TaskStopped  # nothing will ever come
        return command

    def _arrive(self, channels: list[int]) -> Command | None:
        if self._triggers and (not channels or self.rng.random() < 0.3):
            repeats = self.rng.random() < 0.3
            return Triggered(CheckpointId(self._triggers[0] if repeats else self._triggers.pop(0)), False)
        if self._answers and (not channels or self.rng.random() < 0.3):
            number = self.rng.choice(self._answers).number  # what a call tells comes in its order
            return self._answers.pop([answer.number for answer in self._answers].index(number))
        return self._delivered(self.rng.choice(channels)) if channels else None

    def _delivered(self, channel: int) -> Delivered:
        """The next elements in random pieces; known ones may come again before them."""
        elements, first = self.job.inputs[channel], self._next[channel]
        kind = elements[first].kind
        longest = 1
        while kind.is_data and first + longest < len(elements) and elements[first + longest].kind == kind:
            longest += 1
        count, skip = self.rng.randint(1, longest), 0
        while kind.is_data and skip < first and elements[first - skip - 1].kind == kind:
            if self.rng.random() < 0.7:
                break
            skip += 1
        cut = elements[first - skip : first + count]
        self._next[channel] += count
        checkpoint = CheckpointId(cut[0].content if kind is ElementKind.BARRIER else 0)
        return Delivered(ChannelId(channel), kind, len(cut), skip, checkpoint, memoryview(encoded(cut)))

    # ------------------------------------------------------------------ the rest of the port

    def emit(self, emission: TaskEmission) -> None:
        self.emissions += 1
        self.log += emission.log
        for output in emission.outputs:
            found = decoded(output.kind, output.checkpoint, output.payload)
            assert len(found) == output.count
            self.outputs.setdefault(output.channel, []).extend(found)
            self.events += [f"barrier {output.checkpoint}"] * (output.kind is ElementKind.BARRIER)
        if emission.snapshot is not None:
            self.snapshots.append(emission.snapshot)
            if emission.whole is not None:
                self.wholes[emission.snapshot.checkpoint] = tuple(emission.whole)
        if self.emissions == self._dies_at_emission:
            raise TaskStopped

    def budget_bytes(self) -> int:
        return UNLIMITED

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        assert self.live_at is None

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> None:
        assert self.live_at is None
        self.live_at, self.accepted = positions, accepted
        self.emissions_when_live = self.emissions
        self.outputs_when_live = {channel: len(elements) for channel, elements in self.outputs.items()}

    def await_replicated(self, log_end_bytes: int) -> None:
        assert self.start.offset_bytes + len(self.whole_log) >= log_end_bytes
        self.replicated_to.append(log_end_bytes)
        self.events.append(f"kept {log_end_bytes}")

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        self.events.append(f"approaches {first_seq} of {channel}")

    def open_journal(self) -> None:
        raise AssertionError("these sources can be read again")

    def lose_journal(self) -> NoReturn:
        raise AssertionError("these sources can be read again")

    def now_ns(self) -> int:
        self._now_ns += self.rng.randrange(1, 2_000_000)
        return self._now_ns

    def cost_clock_ns(self) -> int:
        return 0

    def entropy(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def perform(self, function: Callable[[str], object], key: str) -> object:
        self.performed.append(key)
        self.events.append(f"call {key}")
        return function(key)

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        assert self.live_at is not None
        self.performed.append(key)
        self._answers.append(Finished(number, function(key)))

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        self._answers.append(PartReported(number, asked, data))
        return True

    def end_calls(self) -> None: ...

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        act()


# ------------------------------------------------------------------ comparing incarnations


def ends_of_entries(log: bytes) -> list[int]:
    """End of each entry of a log, in bytes; 0 first."""
    reader = LogReader(log)
    ends = [0]
    while not reader.at_end:
        reader.next()
        ends.append(reader.offset_bytes)
    return ends


@cache
def tags_of(log: bytes) -> tuple[int, ...]:
    reader = LogReader(log)
    tags = []
    while not reader.at_end:
        tags.append(reader.next()[0])
    return tuple(tags)


def check_continuation(first: ScriptedTask, second: ScriptedTask) -> None:
    """Checks that an incarnation repeats the first one as far as its part of the log goes."""
    assert second.live_at is not None
    assert second.whole_log.startswith(second.start.log)
    for channel, position in second.live_at.items():
        count = position - second.first_seqs.get(channel, 0)
        assert second.outputs_when_live.get(channel, 0) == count
        skipped = second.first_seqs.get(channel, 0) - first.first_seqs.get(channel, 0)
        theirs = first.outputs.get(channel, [])[skipped : skipped + count]
        assert second.outputs.get(channel, [])[:count] == theirs


def check_repeats(first: ScriptedTask, again: ScriptedTask) -> None:
    """Checks that an incarnation with the whole log repeats everything, makes no call, and records nothing new."""
    assert again.log == b""
    assert again.performed == []
    for channel, elements in first.outputs.items():
        skipped = again.first_seqs.get(channel, 0) - first.first_seqs.get(channel, 0)
        assert again.outputs.get(channel, []) == elements[skipped:], channel


def chain_of_snapshots(life: ScriptedTask, checkpoint: int) -> list[Snapshot]:
    """The snapshots that restore a checkpoint, oldest (full) first."""
    by_checkpoint = {snapshot.checkpoint: snapshot for snapshot in life.snapshots}
    found = [by_checkpoint[CheckpointId(checkpoint)]]
    while (previous := found[0].previous) is not None:
        found.insert(0, by_checkpoint[previous])
    return found


def restored_at(life: ScriptedTask, checkpoint: int, log_end_bytes: int | None = None) -> Start:
    """Start of an incarnation that restores a checkpoint, with the log up to an (absolute) end."""
    chain = chain_of_snapshots(life, checkpoint)
    offset = chain[-1].log_offset_bytes
    base = life.start.offset_bytes
    return Start(life.whole_log[offset - base : log_end_bytes and log_end_bytes - base], chain, offset)
