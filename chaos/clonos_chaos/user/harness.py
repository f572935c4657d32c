"""Harness for one step: the test gives records and time, kills the process, and compares the replay.

The harness runs a real task with its causal log, without slot and network. Rules: pushed records stay until a snapshot
covers them; outputs that the test has seen are final, and a replay must repeat them without any external call.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, Final, Self

from clonos.api.stream import Stream
from clonos.connectors import collect, values
from clonos.core.checkpoint.snapshot import decode_snapshot, encode_snapshot
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import JobError, ReplayDiverged
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import Chain, StepFailed
from clonos.core.ports.task_port import Activation, Delivered
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.values import encode_rows, encode_value
from clonos.core.values.elements import decode_records
from clonos.io.process.pickling import pack
from clonos.job import Job
from clonos.job.description import graph_of
from clonos.operators.chain import InputShape
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.job_image import JobImage
from clonos_chaos.user.harness_life import HarnessContext, Life
from clonos_chaos.user.harness_subprocess import case_of, replayed_elsewhere
from clonos_chaos.user.user_calls import Call, CallWatch, HttpAnswer, Services, StandIns
from clonos_chaos.user.user_world import WatchedChain

STEP: Final = "step"
START_NS: Final = 1_700_000_000_000_000_000
SECOND_NS: Final = 1_000_000_000
STEP_RECORDS: Final = 8

Steps = Callable[[Any], Stream[Any]]
"""Function from a stream (keyed, if the harness has a key) to the stream of results."""


class OutputDiverged(ReplayDiverged):
    """A replay with the whole log has made another output than before."""

    def __str__(self) -> str:
        return (
            f"task {self.task} diverged at its output {self.position}: it was {self.logged}, replay makes {self.asked}."
            " The code takes time, randomness or answers from outside the causal services, or keeps state outside"
            " declared state (docs/determinism.md)."
        )


class HarnessMisused(JobError):
    """A method of a harness was called at the wrong time."""

    method: str
    problem: str

    def __str__(self) -> str:
        return f"Harness.{self.method}(): {self.problem}"


@dataclass(frozen=True)
class _Saved:
    """Saved state: positions in the input and the output, and the chain of snapshots."""

    inputs: int
    outputs: int
    snapshots: tuple[Snapshot, ...] = ()


class Harness:
    """Harness of one step. ``outputs``: all its outputs; ``calls``: all calls that reached an external system.

    Args:
        function: of a ``map``, or of a ``stateful_map`` if there is a key; or a process class, or an object of one.
        key: a function of a record.
        steps: instead of ``function``, maps a stream (keyed, if there is a key) to results:
            ``steps=lambda stream: stream.window(Tumbling("1s")).count()``. All of it must run in one task.
        effects: the step has external effects.
        http, services: stand-ins, as for ``crash_test``.
        step_records: number of records in a step of the task.
        start: initial time of the clock (aware).
        seed: of all random numbers.
    """

    def __init__(
        self,
        function: Any = None,
        *,
        key: Callable[[Any], Any] | None = None,
        steps: Steps | None = None,
        effects: bool = False,
        http: HttpAnswer | None = None,
        services: Services | None = None,
        step_records: int = STEP_RECORDS,
        start: datetime | None = None,
        seed: int = 0,
    ) -> None:
        self._key = key
        image = _compiled(function, key, steps, effects)
        self._form = image.vertices[1].inputs[0].form
        self._packed = pack(image, [(STEP, function or steps)])
        plan = image.plan
        self._task = plan.tasks[1]
        self._name = plan.task_name(self._task)
        self._new_mirror = image.new_mirror
        self._input: ChannelId = plan.inputs[self._task][0].id
        self._stand_ins = StandIns(http, services or {})
        self._watch = CallWatch(lambda error: None)
        start_ns = START_NS if start is None else int(start.timestamp() * SECOND_NS)
        options = Options(step_records_first=step_records, step_records_max=step_records, calls_ahead_max=1)
        self._around = HarnessContext(plan, self._task, options, Random(seed), start_ns, self._new_chain)
        self.outputs: list[Any] = []
        self._given: list[tuple[ElementKind, Any]] = []  # elements of the input since the start
        self._log = b""
        self._saved = _Saved(0, 0)
        self._incarnation = 1
        self._life: Life | None = None
        self._begin(is_first=True)

    # ------------------------------------------------------------------ actions of a test

    def push(self, records: Iterable[Any]) -> list[Any]:
        """Gives records to the step; returns the resulting outputs, including those of due timers."""
        rows = list(records)
        self._living("push")
        return self._give([(ElementKind.ROWS, row) for row in self._formed(rows)])

    def advance(self, by: float | timedelta) -> list[Any]:
        """Advances the clock by seconds and fires due timers; returns the resulting outputs. Raises HarnessMisused."""
        life = self._living("advance")
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise HarnessMisused(
                "advance", f"{seconds} s is below 0: the clock of a causal service never runs backwards."
            )
        until_ns = self._around.now_ns + int(seconds * SECOND_NS)
        seen = len(self.outputs)
        while life.waits_until_ns is not None and life.waits_until_ns <= until_ns:
            self._around.now_ns = max(self._around.now_ns, life.waits_until_ns)
            self._go_on(life)
        self._around.now_ns = until_ns
        return self.outputs[seen:]

    def end(self) -> list[Any]:
        """Ends the input: windows and timers fire, whatever the time; returns the resulting outputs."""
        self._living("end")
        return self._give([(ElementKind.END, 0)])

    def snapshot(self) -> int:
        """Takes a snapshot of the state at a barrier after all pushed records; returns its number, from 1."""
        life = self._living("snapshot")
        checkpoint = sum(kind is ElementKind.BARRIER for kind, _ in self._given) + 1
        self._give([(ElementKind.BARRIER, checkpoint)])
        taken = next(emission.snapshot for emission in reversed(life.emissions) if emission.snapshot is not None)
        taken = decode_snapshot(encode_snapshot(taken), STEP)
        known = () if taken.previous is None else self._saved.snapshots
        self._saved = _Saved(len(self._given), len(self.outputs), (*known, taken))
        return checkpoint

    def crash(self, lost: int = 0) -> None:
        """Kills the process. ``lost``: number of last steps whose outputs and log are lost with it.

        Raises HarnessMisused: there are fewer such steps.
        """
        life = self._living("crash")
        if lost < 0:
            raise HarnessMisused("crash", f"lost={lost} is below 0: it is the number of steps to lose.")
        since = [emission for emission in life.emissions if emission.log or emission.outputs]
        if lost > len(since) or any(emission.snapshot for emission in since[len(since) - lost :]):
            raise HarnessMisused(
                "crash", f"fewer than {lost} steps were taken since this incarnation began or a snapshot was taken"
            )
        for emission in since[len(since) - lost :]:
            self._log = self._log[: len(self._log) - len(emission.log)]
            count = sum(output.count for output in emission.outputs)
            del self.outputs[len(self.outputs) - count :]
        life.stop()
        self._life = None

    def restore(self) -> None:
        """Starts a successor from the last snapshot and the log after it. Raises HarnessMisused."""
        if self._life is not None:
            raise HarnessMisused("restore", "the process is alive. Call crash() first.")
        self._incarnation += 1
        self._begin(is_first=False)

    def replay(self, elsewhere: bool = False) -> list[Any]:
        """Gives the successor all records since the snapshot again, and lets it go live; returns the replayed outputs.

        Raises ReplayDiverged or OutputDiverged: it differs from its predecessor. Raises HarnessMisused.

        elsewhere: replays first in another Python process with other hashes and addresses: finds orders of sets.
        """
        life = self._life
        if life is None or life.may_live:
            raise HarnessMisused("replay", "there is nothing to replay. Call crash() and restore() first.")
        self._deliver(self._given[self._saved.inputs :])
        expected = self.outputs[self._saved.outputs :]
        if elsewhere:
            case = case_of(life, self._packed, 1, self._saved.snapshots, self._around.options.step_records_first)
            self._compare(expected, _decoded(replayed_elsewhere(case)))
        self._run(life)
        assert life.is_at_log_end, "all that the log reads was delivered"
        assert not life.performed, "a replay makes no call"
        again = _rows_of(life)
        self._compare(expected, again)
        life.may_live = True
        life.emissions.clear()
        self._go_on(life)
        return again

    def close(self) -> None:
        """Ends the process. The harness is a context manager that calls this."""
        if self._life is not None:
            self._life.stop()
            self._life = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ state for a test

    @property
    def now(self) -> datetime:
        """Returns the time of the clock."""
        return from_timestamp_ns(self._around.now_ns)

    @property
    def next_timer(self) -> datetime | None:
        """Returns when the earliest timer or end of a window is due."""
        due_ns = None if self._life is None else self._life.waits_until_ns
        return None if due_ns is None else from_timestamp_ns(due_ns)

    @property
    def calls(self) -> tuple[Call, ...]:
        """Returns the calls that reached an external system, with their idempotency keys."""
        return tuple(self._watch.calls)

    # ------------------------------------------------------------------ lives

    def _new_chain(self) -> Chain:
        image: JobImage = pickle.loads(self._packed)  # noqa: S301  it was packed by this process
        return WatchedChain(image.vertices[1], self._watch)

    def _begin(self, is_first: bool) -> None:
        snapshots = self._saved.snapshots
        mirror = None
        if snapshots:
            mirror = self._new_mirror(1)
            for snapshot in snapshots:
                mirror.apply(snapshot.changes)
        offset_bytes = snapshots[-1].log_offset_bytes if snapshots else 0
        last = snapshots[-1] if snapshots else None
        activation = Activation(
            Incarnation(self._incarnation), last, mirror, self._log[offset_bytes:], offset_bytes, 1, False, "harness"
        )
        self._around.commands.clear()
        life = self._life = Life(self._around, activation, is_first)
        self._run(life)

    def _give(self, elements: list[tuple[ElementKind, Any]]) -> list[Any]:
        life = self._living("push")
        seen = len(self.outputs)
        self._given += elements
        self._deliver(elements)
        self._go_on(life)
        return self.outputs[seen:]

    def _deliver(self, elements: list[tuple[ElementKind, Any]]) -> None:
        rows: list[Any] = []
        for kind, content in (*elements, (ElementKind.END, None)):
            if kind is ElementKind.ROWS:
                rows.append(content)
                continue
            if rows:
                payload = encode_rows(rows)
                self._around.commands.append(
                    Delivered(self._input, ElementKind.ROWS, len(rows), 0, CheckpointId(0), payload)
                )
                rows = []
            if content is not None:
                self._around.commands.append(Delivered(self._input, kind, 1, 0, CheckpointId(content), b""))

    def _go_on(self, life: Life) -> None:
        """Resumes a task, and takes over its log and outputs."""
        first = len(life.emissions)
        self._run(life)
        for emission in life.emissions[first:]:
            self._log += emission.log
        self.outputs += _rows_of(life, first)

    def _run(self, life: Life) -> None:
        with self._stand_ins.answering(), self._watch.watching():
            life.resume()
        if life.error is not None:
            self._life = None
            if isinstance(life.error, StepFailed) and life.error.__cause__ is not None:
                raise life.error.__cause__
            raise life.error

    def _living(self, method: str) -> Life:
        if self._life is None:
            raise HarnessMisused(method, "the process is dead. Call restore() and replay() first.")
        if not self._life.may_live:
            raise HarnessMisused(method, "the successor has not replayed its input. Call replay() first.")
        return self._life

    # ------------------------------------------------------------------ rows

    def _formed(self, rows: list[Any]) -> list[Any]:
        if self._form is InputShape.PAIRS:
            assert self._key is not None
            return [(self._key(row), row) for row in rows]
        return rows

    def _compare(self, expected: list[Any], again: list[Any]) -> None:
        for number in range(max(len(expected), len(again))):
            was = repr(expected[number]) if number < len(expected) else "not there"
            becomes = repr(again[number]) if number < len(again) else "not there"
            is_there = number < len(expected) and number < len(again)
            if not is_there or encode_value(expected[number]) != encode_value(again[number]):
                self.close()
                raise OutputDiverged(self._name, self._saved.outputs + number, was[:300], becomes[:300])


def _rows_of(life: Life, first: int = 0) -> list[Any]:
    """Returns the output rows of an incarnation."""
    outputs = [output for emission in life.emissions[first:] for output in emission.outputs]
    return _decoded([(output.kind, output.payload) for output in outputs])


def _decoded(outputs: list[tuple[ElementKind, bytes]]) -> list[Any]:
    rows: list[Any] = []
    for kind, payload in outputs:
        if kind.is_data:
            rows += decode_records(kind, payload)
    return rows


def _compiled(function: Any, key: Callable[[Any], Any] | None, steps: Steps | None, effects: bool) -> JobImage:
    if (function is None) == (steps is None):
        raise HarnessMisused("__init__", "pass either a function (or a process class) or steps=.")
    job = Job("harness")
    source: Stream[Any] = job.source(values([]), name="given")
    stream: Any = source.rebalance() if key is None else source.key_by(key)
    if steps is not None:
        results = steps(stream)
    elif hasattr(function, "process"):
        results = stream.process(function, name=STEP, effects=effects)
    elif key is not None:
        results = stream.stateful_map(function, name=STEP, effects=effects)
    else:
        results = stream.map(function, name=STEP, effects=effects)
    results.rebalance().sink(collect(), name="seen")
    image = graph_of(job).compile(Options())
    if len(image.vertices) != len(("given", STEP, "seen")):
        raise HarnessMisused("__init__", "the steps make more than one task. Use crash_test for them.")
    return image
