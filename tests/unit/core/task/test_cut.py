"""A task that is cut (protocol 6.12) stands behind its barrier, with no call open, until a view lets it go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.log import determinants as d
from clonos.core.model.ids import CheckpointId
from clonos.core.model.watermark import Activity, Watermark
from clonos.core.ports.task_port import Command, CutAt, TaskEmission, TaskStopped, Triggered
from tests.harnesses.recording_chain import DRAINED_CALL, EVERYTHING, RecordingChain, Use
from tests.harnesses.task_harness import (
    END,
    Job,
    ScriptedTask,
    Start,
    barrier,
    check_continuation,
    check_repeats,
    ends_of_entries,
    rows,
    tags_of,
    watermark,
)
from tests.unit.core.task.test_task_replay import ASIDE, JOBS, timed


class CutTask(ScriptedTask):
    """An incarnation that is cut at one of its barriers, and that goes on after some commands."""

    def __init__(self, job: Job, number: int, cut: int) -> None:
        super().__init__(job, number)
        self.cut, self.has_begun, self.is_cut, self.waits = cut, False, False, 0

    def receive(self, until_ns: int | None) -> Command | None:
        if not self.has_begun:
            self.has_begun = True
            return CutAt(CheckpointId(self.cut))
        if self.is_cut:
            assert until_ns is None, "no timer ends the pause"
            self.waits += 1
            try:
                if self.waits % 3 and (command := super().receive(None)) is not None:
                    return command
            except TaskStopped:  # nothing comes that the task could wait for
                pass
            self.is_cut = False
            self.cut = 0
            return CutAt(CheckpointId(0))
        return super().receive(until_ns)

    def emit(self, emission: TaskEmission) -> None:
        assert not self.is_cut, "it has passed the barrier of its cut"
        snapshot = emission.snapshot
        if snapshot is not None and not snapshot.final and snapshot.checkpoint == self.cut:
            assert not self.task.log.open_calls
            self.is_cut = True
        super().emit(emission)


def barriers_of(job: str) -> list[int]:
    return [int(snapshot.checkpoint) for snapshot in ScriptedTask(JOBS[job](), 3).run().snapshots if not snapshot.final]


def made_until(job: str, cut: int) -> Job:
    """The job with no trigger after that of the cut: the coordinator sends none before it gives the cut up."""
    made = JOBS[job]()
    return replace(made, triggers=tuple(trigger for trigger in made.triggers if trigger <= cut))


@pytest.mark.parametrize("job", [job for job in JOBS if barriers_of(job)])
def test_a_task_makes_no_step_after_the_barrier_of_its_cut_until_a_view_lets_it_go_on(job: str) -> None:
    cut = barriers_of(job)[0]
    made = made_until(job, cut)
    undisturbed = ScriptedTask(made, 3).run()
    life = CutTask(made, 3, cut)
    life.run()
    assert life.task.is_final
    assert life.waits > 0
    assert life.outputs.keys() == undisturbed.outputs.keys()
    check_continuation(life, ScriptedTask(made, 50, Start(life.log)).run())


@pytest.mark.parametrize("job", [job for job in JOBS if barriers_of(job)])
def test_rows_that_wait_leave_just_before_the_barrier_of_a_cut_in_a_replay_too(job: str) -> None:
    cut = barriers_of(job)[0]
    made = made_until(job, cut)
    life = CutTask(made, 3, cut)
    life.run()
    end_bytes = next(snapshot.log_offset_bytes for snapshot in life.snapshots if snapshot.checkpoint == cut)
    before = tags_of(life.log[:end_bytes])
    last = max(place for place, tag in enumerate(before) if tag == d.DRAIN)
    assert set(before[last + 1 : -1]) <= {d.CLOCK}
    assert before[-1] in (d.STEP, d.TRIGGER)
    assert before.count(d.DRAIN) == 1 + ("aside" in job), "what waited may make calls, after which more may wait"
    assert d.DRAIN not in tags_of(life.log[end_bytes:])
    check_repeats(life, ScriptedTask(made, 50, Start(life.log)).run())


class AskingChain(RecordingChain):
    """User code that makes a call when event time rises, as a call behind a window does."""

    def advance_watermark(self, watermark: Watermark) -> None:
        super().advance_watermark(watermark)
        if not isinstance(watermark, Activity):
            number = DRAINED_CALL + 1_000 + watermark
            self.asked[number] = watermark
            self.submit(number, watermark)


def ending(chain: type[RecordingChain], uses: tuple[Use, ...]) -> Job:
    """Inputs of which one ends without the barrier that the others have."""
    inputs = {
        0: [*rows(1, 2, 3), *watermark(4), *barrier(1), *rows(4, 5), *watermark(30), *END],
        1: [*rows(10), *watermark(6), *barrier(1), *rows(11, 12), *watermark(40), *END],
        2: [*rows(*range(20, 26)), *watermark(2), *rows(27), *END],
    }
    return replace(timed(), new_chain=lambda rng: chain(uses, lambda row, key: rng.random()), inputs=inputs)


@pytest.mark.parametrize("chain", [RecordingChain, AskingChain])
@pytest.mark.parametrize("uses", [EVERYTHING, ASIDE])
def test_a_cut_that_the_end_of_an_input_completes_has_nothing_waiting_and_a_replay_repeats_it(
    chain: type[RecordingChain], uses: tuple[Use, ...]
) -> None:
    made = ending(chain, uses)
    lives = [CutTask(made, seed, 1) for seed in range(8)]
    for life in lives:
        life.run()
        assert life.task.is_final
        assert life.waits > 0
    held = [life for life in lives if d.HELD in tags_of(life.log)]
    assert 0 < len(held) < len(lives), "the end of the input comes last in some of the orders of arrival"
    for life in held:
        end_bytes = next(snapshot.log_offset_bytes for snapshot in life.snapshots if snapshot.checkpoint == 1)
        before = [tag for tag in tags_of(life.log[:end_bytes]) if tag != d.CLOCK]
        assert before[-1] == d.DRAIN
        assert before[before.index(d.HELD) + 1] == d.STEP
        check_repeats(life, ScriptedTask(made, 50, Start(life.log)).run())
    ends = ends_of_entries(held[0].log)
    first = tags_of(held[0].log).index(d.HELD)
    for number, end in enumerate(ends[first : first + 8], 100):
        check_continuation(held[0], ScriptedTask(made, number, Start(held[0].log[:end])).run())


class HeldBackTask(CutTask):
    """A source that may produce nothing from the trigger of the cut on, as above a soft limit of memory."""

    def budget_bytes(self) -> int:
        return 0 if self.is_triggered and not self.is_cut else UNLIMITED

    is_triggered = False

    def receive(self, until_ns: int | None) -> Command | None:
        command = super().receive(until_ns)
        self.is_triggered |= isinstance(command, Triggered) and command.checkpoint == self.cut
        return command


def test_a_source_held_back_by_a_limit_of_memory_comes_to_the_barrier_of_its_cut() -> None:
    made = made_until("reader with calls aside", 1)
    for seed in range(20):
        life = HeldBackTask(made, seed, 1)
        life.run()
        assert life.waits > 0, "only the cut's checkpoint frees what its log holds"
