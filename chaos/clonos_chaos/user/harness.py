"""Harness for one step: the test gives records and time, kills the process, and compares the replay.

The harness runs a real task with its causal log, without slot and network. Rules: pushed records stay until a snapshot
covers them; outputs that the test has seen are final, and a replay must repeat them without any external call.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from clonos.api.event_time import AnyTimestamps
from clonos.core.checkpoint.snapshot import decode_snapshot, encode_snapshot
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import ReplayDiverged
from clonos.core.model.ids import Incarnation
from clonos.core.model.options import Options
from clonos.core.model.suspect import likely_cause
from clonos.core.ports.operator_chain import Chain, StepFailed
from clonos.core.ports.task_port import Activation
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.task.divergence import OTHER_OUTPUT
from clonos.core.values import encode_value
from clonos.io.process.pickling import pack
from clonos.operators.event_time.timestamps import Unit, event_time_ns, from_timestamp_ns
from clonos.operators.job_image import JobImage
from clonos.operators.tags import Tag
from clonos_chaos.user.harness_inputs import Given, deliveries
from clonos_chaos.user.harness_life import HarnessContext, Life
from clonos_chaos.user.harness_steps import (
    RESULTS,
    STEP,
    Emitted,
    Encoded,
    HarnessMisused,
    StepOutputs,
    Steps,
    compiled,
)
from clonos_chaos.user.harness_subprocess import case_of, replayed_elsewhere
from clonos_chaos.user.user_calls import Call, CallWatch
from clonos_chaos.user.user_job import WatchedChain
from clonos_services.stand_ins import HttpAnswer, Services, StandIns

T = TypeVar("T")

START_NS: Final = 1_700_000_000_000_000_000
SECOND_NS: Final = 1_000_000_000
STEP_RECORDS: Final = 8


class OutputDiverged(ReplayDiverged):
    """A replay with the whole log has made another output than before."""

    def __str__(self) -> str:
        return (
            f"task {self.task} diverged at its output {self.position}: it was {self.logged}, replay makes {self.asked}."
            f"\nLikely cause: {self.cause}."
            "\nTake time, randomness and data from the services of clonos, keep variables as state, sort sets"
            " (docs/determinism.md)."
        )


@dataclass(frozen=True)
class _Saved:
    """Saved state: positions in the input and the output, and the chain of snapshots."""

    inputs: int
    outputs: int
    snapshots: tuple[Snapshot, ...] = ()


class Harness:
    """Harness of one step: a test gives it records and time, and reads its outputs.

    Args:
        function: of a ``map``, or of a ``stateful_map`` if there is a key; or a process class, or an object of one.
        key: a function of a record.
        steps: instead of ``function``, maps a stream (keyed, if there is a key) to results:
            ``steps=lambda stream: stream.window(Tumbling("1s")).count()``, or two streams:
            ``steps=lambda first, second: first.join(second, on="id", ttl="1h")``. All of it must run in one task.
        timestamps: of the records, as ``Job.source`` takes them: the stream then has event time, and
            ``advance_watermark`` makes it pass. No watermark follows from the records.
        second_key: key of the second input of a two-input process function, which is broadcast without one; or of the
            second stream that ``steps`` gets.
        second_timestamps: of the records of the second input, if they are not those of the first.
        side_outputs: tags of the side outputs that ``side_output`` returns.
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
        timestamps: AnyTimestamps | None = None,
        second_key: Callable[[Any], Any] | None = None,
        second_timestamps: AnyTimestamps | None = None,
        side_outputs: Sequence[Tag[Any]] = (),
        effects: bool = False,
        http: HttpAnswer | None = None,
        services: Services | None = None,
        step_records: int = STEP_RECORDS,
        start: datetime | None = None,
        seed: int = 0,
    ) -> None:
        job = compiled(function, (key, second_key), steps, effects, (timestamps, second_timestamps), side_outputs)
        self._vertex, self._inputs = job.vertex, job.inputs
        self._watermark_ns: int | None = None
        self._tags, self._of_step = tuple(side_outputs), StepOutputs(job, side_outputs)
        self._packed = pack(job.image, [(STEP, function or steps)])
        plan = job.image.plan
        self._task = plan.tasks[job.vertex]
        self._name = plan.task_name(self._task)
        self._new_mirror = job.image.new_mirror
        self._stand_ins = StandIns(http, services or {})
        self._watch = CallWatch(lambda error: None)
        start_ns = START_NS if start is None else int(start.timestamp() * SECOND_NS)
        options = Options(step_records_first=step_records, step_records_max=step_records, calls_ahead_max=1)
        self._around = HarnessContext(plan, self._task, options, Random(seed), start_ns, self._new_chain)
        self._emitted: list[Emitted] = []
        self._given: list[Given] = []  # elements of the inputs since the start
        self._log = b""
        self._saved = _Saved(0, 0)
        self._incarnation = 1
        self._life: Life | None = None
        self._begin(is_first=True)

    # ------------------------------------------------------------------ actions of a test

    def push(self, records: Iterable[Any]) -> list[Any]:
        """Gives records to the step; returns the resulting outputs, including those of due timers."""
        return self._push("push", 1, 0, records)

    def push_first(self, records: Iterable[Any]) -> list[Any]:
        """Gives records to the first of two inputs; returns the resulting outputs. Raises HarnessMisused."""
        return self._push("push_first", 2, 0, records)

    def push_second(self, records: Iterable[Any]) -> list[Any]:
        """Gives records to the second of two inputs; returns the resulting outputs. Raises HarnessMisused."""
        return self._push("push_second", 2, 1, records)

    def _push(self, method: str, width: int, number: int, records: Iterable[Any]) -> list[Any]:
        self._living(method)
        if len(self._inputs) != width:
            advice = "one input. Call push()." if width == 2 else "two inputs. Call push_first() or push_second()."
            raise HarnessMisused(method, f"the steps have {advice}")
        rows = self._inputs[number].formed(list(records))
        return self._give([Given(number, ElementKind.ROWS, row) for row in rows])

    def advance(self, by: float | timedelta) -> list[Any]:
        """Advances the clock by seconds and fires due timers; returns the resulting outputs. Raises HarnessMisused."""
        life = self._living("advance")
        seconds = by.total_seconds() if isinstance(by, timedelta) else by
        if seconds < 0:
            raise HarnessMisused(
                "advance", f"{seconds} s is below 0: the clock of a causal service never runs backwards."
            )
        until_ns = self._around.now_ns + int(seconds * SECOND_NS)
        seen = len(self._emitted)
        while life.waits_until_ns is not None and life.waits_until_ns <= until_ns:
            self._around.now_ns = max(self._around.now_ns, life.waits_until_ns)
            self._go_on(life)
        self._around.now_ns = until_ns
        return self._results(seen)

    def advance_watermark(self, to: datetime) -> list[Any]:
        """Gives all inputs a watermark: no record with an earlier timestamp comes, or else it is late. Returns the
        resulting outputs.

        Raises HarnessMisused: the stream has no timestamps, or the watermark does not rise.
        """
        self._living("advance_watermark")
        if self._inputs[0].assigner is None:
            raise HarnessMisused("advance_watermark", "the stream has no timestamps. Give the harness timestamps=.")
        watermark_ns = event_time_ns(to, Unit.SECONDS)
        if self._watermark_ns is not None and watermark_ns <= self._watermark_ns:
            raise HarnessMisused(
                "advance_watermark",
                f"{to.isoformat()} is not above {from_timestamp_ns(self._watermark_ns).isoformat()}: watermarks rise.",
            )
        self._watermark_ns = watermark_ns
        return self._give_all(ElementKind.WATERMARK, watermark_ns)

    def end(self) -> list[Any]:
        """Ends the input: windows and timers fire, whatever the time; returns the resulting outputs."""
        self._living("end")
        return self._give_all(ElementKind.END, 0)

    def snapshot(self) -> int:
        """Takes a snapshot of the state at a barrier after all pushed records; returns its number, from 1."""
        life = self._living("snapshot")
        barriers = sum(given.kind is ElementKind.BARRIER for given in self._given)
        checkpoint = barriers // len(self._inputs) + 1
        self._give_all(ElementKind.BARRIER, checkpoint)
        taken = next(emission.snapshot for emission in reversed(life.emissions) if emission.snapshot is not None)
        taken = decode_snapshot(encode_snapshot(taken), STEP)
        known = () if taken.previous is None else self._saved.snapshots
        self._saved = _Saved(len(self._given), len(self._emitted), (*known, taken))
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
            count = sum(output.count for output in emission.outputs if output.kind.is_data)
            del self._emitted[len(self._emitted) - count :]
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
        expected = self._emitted[self._saved.outputs :]
        if elsewhere:
            step_records = self._around.options.step_records_first
            case = case_of(life, self._packed, self._vertex, self._saved.snapshots, step_records)
            self._compare(expected, self._of_step.emitted(replayed_elsewhere(case)))
        self._run(life)
        assert life.is_at_log_end, "all that the log reads was delivered"
        assert not life.performed, "a replay makes no call"
        again = self._emitted_by(life)
        self._compare(expected, again)
        life.may_live = True
        life.emissions.clear()
        self._go_on(life)
        return [each.row for each in again if each.output == RESULTS]

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
    def outputs(self) -> list[Any]:
        """Returns all outputs, without those of side outputs."""
        return self._results(0)

    @property
    def timestamps(self) -> list[datetime | None]:
        """Returns the timestamps of all outputs, None for one without."""
        found = [each.timestamp_ns for each in self._emitted if each.output == RESULTS]
        return [None if timestamp_ns is None else from_timestamp_ns(timestamp_ns) for timestamp_ns in found]

    def side_output(self, tag: Tag[T]) -> list[T]:
        """Returns all rows of a side output. Raises HarnessMisused: the harness was not given this tag."""
        if tag not in self._tags:
            raise HarnessMisused("side_output", f"give the harness side_outputs=[{tag!r}].")
        return [each.row for each in self._emitted if each.output == tag.name]

    def _results(self, first: int) -> list[Any]:
        return [each.row for each in self._emitted[first:] if each.output == RESULTS]

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

    def _image(self) -> JobImage:
        image: JobImage = pickle.loads(self._packed)  # noqa: S301  it was packed by this process
        return image

    def _new_chain(self) -> Chain:
        return WatchedChain(self._image().vertices[self._vertex], self._watch)

    def _begin(self, is_first: bool) -> None:
        snapshots = self._saved.snapshots
        mirror = None
        if snapshots:
            mirror = self._new_mirror(self._vertex)
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

    def _give_all(self, kind: ElementKind, content: int) -> list[Any]:
        return self._give([Given(number, kind, content) for number in range(len(self._inputs))])

    def _give(self, elements: list[Given]) -> list[Any]:
        life = self._living("push")
        seen = len(self._emitted)
        self._given += elements
        self._deliver(elements)
        self._go_on(life)
        return self._results(seen)

    def _deliver(self, elements: list[Given]) -> None:
        self._around.commands.extend(deliveries(self._inputs, elements))

    def _go_on(self, life: Life) -> None:
        """Resumes a task, and takes over its log and outputs."""
        first = len(life.emissions)
        self._run(life)
        for emission in life.emissions[first:]:
            self._log += emission.log
        self._emitted += self._emitted_by(life, first)

    def _emitted_by(self, life: Life, first: int = 0) -> list[Emitted]:
        outputs = [output for emission in life.emissions[first:] for output in emission.outputs]
        return self._of_step.emitted(Encoded(output.channel, output.kind, output.payload) for output in outputs)

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

    def _compare(self, expected: list[Emitted], again: list[Emitted]) -> None:
        for number in range(max(len(expected), len(again))):
            was = repr(expected[number].row) if number < len(expected) else "not there"
            becomes = repr(again[number].row) if number < len(again) else "not there"
            is_there = number < len(expected) and number < len(again)
            if not is_there or encode_value(tuple(expected[number])) != encode_value(tuple(again[number])):
                self.close()
                cause = likely_cause(self._image().vertices[self._vertex].suspects_of(""), "", OTHER_OUTPUT)
                raise OutputDiverged(self._name, self._saved.outputs + number, was[:300], becomes[:300], cause)
