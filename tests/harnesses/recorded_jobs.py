"""Records for the tests of replays: a job runs in this thread, one task after the other, and leaves one for each."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NoReturn
from unittest.mock import patch

from clonos import Job
from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.checkpoint.snapshot import encode_snapshot
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.ports.task_port import (
    Activation,
    Command,
    Delivered,
    Finished,
    PartReported,
    TaskEmission,
    TaskStopped,
    Triggered,
)
from clonos.core.ports.task_snapshot import SinkRows, Snapshot
from clonos.core.task.failure_report import describe_failure
from clonos.core.task.task import Task
from clonos.core.wire.capture_messages import Elements, digest_of
from clonos.io.epochs.record_parts import (
    RECORD_FORMAT,
    DigestKind,
    EmittedOutput,
    FailedHere,
    RecordedWay,
    RecordHead,
    SourceFile,
    SourceRecords,
    StatePiece,
)
from clonos.io.epochs.record_writer import RecordWriter
from clonos.io.process.pickling import pack, source_files
from clonos.job.description import graph_of
from clonos.operators.connector_contract import TransactionalSink
from clonos.operators.job_image import JobImage
from clonos.operators.split_source import OpenSplit
from clonos.replay.loading import versions_here

START_NS = 1_700_000_000_000_000_000
STEP_RECORDS = 8
JOB_ID = "job-1"


class _Port:
    """``TaskPort`` of a live task: all of its input is there, its clock moves by a millisecond with each look."""

    def __init__(self, commands: list[Command], barriers: dict[int, int], are_calls_instant: bool) -> None:
        """``barriers``: of a source, by the number of emissions before each. ``are_calls_instant``: see
        ``record_job``."""
        self.emissions: list[TaskEmission] = []
        self._commands, self._barriers = deque(commands), dict(barriers)
        self._are_calls_instant = are_calls_instant
        self._now_ns = START_NS
        self._rng = Random(5)

    def receive(self, until_ns: int | None) -> Command | None:
        if (checkpoint := self._barriers.pop(len(self.emissions), None)) is not None:
            return Triggered(CheckpointId(checkpoint), False)
        if self._commands:
            return self._commands.popleft()
        if until_ns is None:
            raise TaskStopped
        self._now_ns = max(self._now_ns, until_ns)
        return None

    def emit(self, emission: TaskEmission) -> None:
        self.emissions.append(emission)

    def budget_bytes(self) -> int:
        return UNLIMITED

    def needs(self, channel: ChannelId, next_seq: int) -> None:
        raise AssertionError("a live task waits for nothing")

    def go_live(self, positions: dict[ChannelId, int], accepted: str = "") -> None:
        pass

    def await_replicated(self, log_end_bytes: int) -> None:
        pass

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        pass

    def open_journal(self) -> None:
        pass

    def lose_journal(self) -> NoReturn:
        raise AssertionError("there is no journal")

    def now_ns(self) -> int:
        self._now_ns += 1_000_000
        return self._now_ns

    def cost_clock_ns(self) -> int:
        return 0

    def entropy(self, count: int) -> bytes:
        return self._rng.randbytes(count)

    def perform(self, function: Any, key: str) -> object:
        return function(key)

    def begin_call(self, number: int, function: Callable[[str], bytes], key: str) -> None:
        later, self._commands = self._commands, deque()
        self._commands.append(Finished(number, function(key)))
        self._commands = self._commands + later if self._are_calls_instant else later + self._commands

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        self._commands.append(PartReported(number, asked, data))
        return True

    def end_calls(self) -> None: ...

    def when_replicated(self, log_end_bytes: int, act: Callable[[], None]) -> None:
        act()


def record_job(
    job: Job,
    folder: Path,
    *,
    barriers: dict[int, int] | None = None,
    epoch: int = 0,
    has_sink_digests: bool = False,
    are_calls_instant: bool = False,
) -> dict[str, Path]:
    """Runs a job and returns the record of each task by its name: of its last epoch from the barrier ``epoch`` on.
    ``has_sink_digests``: the records have digests of the rows of sinks. ``are_calls_instant``: asynchronous calls
    are complete before the next input, and not after all of it.

    ``barriers``: checkpoints by the number of emissions of each source before them. A task that fails is the last one.
    """
    options = Options(step_records_first=STEP_RECORDS, step_records_max=STEP_RECORDS)
    image = graph_of(job).compile(options)
    if has_sink_digests:
        image = replace(image, vertices=tuple(replace(each, has_sink_digests=True) for each in image.vertices))
    packed = pack(image)
    for sink in image.sinks.values():
        if isinstance(sink, TransactionalSink):
            sink.prepare_output(JOB_ID, resume=False, overwrite=False)
    plan, sent = image.plan, dict[ChannelId, list[Elements]]()
    found = dict[str, Path]()
    for task in plan.tasks:
        recorded = _Recorded(packed, task)
        recorded.run(sent, barriers or {}, are_calls_instant)
        name = plan.task_name(task)
        found[name] = folder / name.replace("/", "-")
        recorded.write(found[name], epoch)
        if recorded.failure is not None:
            return found
    return found


class _Recorded:
    def __init__(self, packed: bytes, task: TaskId) -> None:
        self.packed, self.task = packed, task
        self.image: JobImage = pickle.loads(packed)  # noqa: S301  it was packed by this process
        self.failure: FailedHere | None = None
        self.unfinished = b""
        self.reads: list[tuple[int, SourceRecords]] = []  # with the number of emissions before

    def run(self, sent: dict[ChannelId, list[Elements]], barriers: dict[int, int], are_calls_instant: bool) -> None:
        plan, task = self.image.plan, self.task
        self.input = {channel.id: sent.get(channel.id, []) for channel in plan.inputs[task]}
        commands: list[Command] = [
            Delivered(each.channel, each.kind, each.count, 0, each.checkpoint, each.payload)
            for elements in self.input.values()
            for each in elements
        ]
        vertex = plan.vertex_of[task]
        port = self.port = _Port(commands, barriers if plan.vertices[vertex].is_source else {}, are_calls_instant)
        chain = self.image.new_chain(vertex)
        activation = Activation(Incarnation(1), None, None, b"", 0, 1, False, JOB_ID)
        running = Task(plan, task, chain, port, activation, self.image.options)
        try:
            with self._recording_reads():
                running.run()
        except TaskStopped:
            pass
        except StepFailed as error:
            failed = describe_failure(running, error)
            at = running.at
            self.unfinished = running.log.drain()
            self.failure = FailedHere(
                failed.error, error.at.step, error.at.record, at.channel if at else None, 0, at.count if at else 0, ""
            )
        for emission in port.emissions:
            for output in emission.outputs:
                elements = sent.setdefault(output.channel, [])
                first_seq = elements[-1].first_seq + elements[-1].count if elements else 0
                elements.append(
                    Elements(output.channel, first_seq, output.kind, output.count, output.checkpoint, output.payload)
                )

    @contextmanager
    def _recording_reads(self) -> Iterator[None]:
        """Records what the readers of a source give."""
        recorded, take = self, OpenSplit.take

        def recorded_take(split: OpenSplit, count: int) -> Any:
            batch = take(split, count)
            records = SourceRecords(split.number, count, pickle.dumps(batch))
            recorded.reads.append((len(recorded.port.emissions), records))
            return batch

        with patch.object(OpenSplit, "take", recorded_take):
            yield

    def write(self, folder: Path, epoch: int) -> None:
        emissions = self.port.emissions
        snapshots = [(place, each) for place, each in enumerate(emissions) if each.snapshot is not None]
        chain = [(place, each) for place, each in snapshots if each.snapshot and each.snapshot.checkpoint <= epoch]
        start = chain[-1][0] + 1 if chain else 0
        snapshot: Snapshot | None = chain[-1][1].snapshot if chain else None
        offset = snapshot.log_offset_bytes if snapshot else 0
        log = (b"".join(each.log for each in emissions) + self.unfinished)[offset:]
        positions = dict(snapshot.outputs) if snapshot else {}
        inputs = dict(snapshot.inputs) if snapshot else {}
        with RecordWriter(folder) as writer:
            writer.job(self.packed)
            for file, text in source_files(self.packed):
                writer.source(SourceFile(file, text))
            for _, each in chain:
                assert each.snapshot is not None
                name = f"snapshot-{each.snapshot.checkpoint}"
                writer.state(StatePiece(name, encode_snapshot(each.snapshot)))
                for piece in each.more or ():
                    writer.state(StatePiece(name, piece))
            writer.log(log)
            for channel, elements in self.input.items():
                for element in elements:
                    if element.first_seq + element.count > inputs.get(channel, 0):
                        writer.input(element)
            for before, records in self.reads:
                if before >= start:
                    writer.input(records)
            for each in emissions[start:]:
                for output in each.outputs:
                    first_seq = positions.get(output.channel, 0)
                    positions[output.channel] = first_seq + output.count
                    writer.expected(
                        EmittedOutput(
                            output.channel,
                            first_seq,
                            output.kind,
                            output.count,
                            output.checkpoint,
                            digest_of(output.payload),
                        )
                    )
            writer.finish(self._head(epoch, offset))

    def _sinks(self, epoch: int) -> tuple[SinkRows, ...]:
        last = next((each.snapshot for each in reversed(self.port.emissions) if each.snapshot is not None), None)
        return () if last is None else tuple(each for each in last.sinks if each.since == epoch)

    def _head(self, epoch: int, log_offset_bytes: int) -> RecordHead:
        plan = self.image.plan
        return RecordHead(
            format=RECORD_FORMAT,
            way=RecordedWay.RUNNING if self.failure is None else RecordedWay.FAILED,
            job=plan.job_name,
            job_id=JOB_ID,
            task=plan.task_name(self.task),
            task_id=self.task,
            epoch=CheckpointId(epoch),
            generation=1,
            incarnation=Incarnation(1),
            widths=(),
            log_offset_bytes=log_offset_bytes,
            unfinished_bytes=len(self.unfinished),
            is_whole=self.failure is None,
            written_ns=START_NS,
            versions=versions_here(),
            failure=self.failure,
            missing=(),
            redacted=(),
            parts={},
            sinks=self._sinks(epoch),
            digests=DigestKind.XXH3,
        )
