"""A suspended task (protocol 6.11) ends between two steps, without an open call: its successor repeats none."""

from __future__ import annotations

import pytest

from clonos.core.ports.task_port import Command, Resumed, Suspended, TaskEmission, TaskStopped
from tests.harnesses.task_harness import Job, ScriptedTask, Start, check_continuation
from tests.unit.core.task.test_task_replay import JOBS


class SuspendedTask(ScriptedTask):
    """An incarnation that is asked to stop after some emissions, perhaps with calls under way."""

    def __init__(self, job: Job, number: int, asked_after: int) -> None:
        super().__init__(job, number)
        self.asked_after, self.is_asked, self.has_stopped = asked_after, False, False

    def receive(self, until_ns: int | None) -> Command | None:
        if self.has_stopped:
            raise TaskStopped
        if not self.is_asked and self.emissions >= self.asked_after:
            self.is_asked = True
            return Suspended(7)
        return super().receive(until_ns)

    def emit(self, emission: TaskEmission) -> None:
        assert not self.has_stopped, "it has said that nothing follows"
        self.has_stopped = emission.suspension == 7
        super().emit(emission)


class ResumedTask(ScriptedTask):
    """An incarnation that is suspended and goes on, perhaps with calls under way, again and again."""

    def __init__(self, job: Job, number: int, every: int) -> None:
        super().__init__(job, number)
        self.every, self.suspensions, self.waits, self.pauses = every, 0, 0, 0
        self.is_suspended = False

    def receive(self, until_ns: int | None) -> Command | None:
        if self.is_suspended:
            self.waits += 1
            try:
                if self.waits % 3:
                    return super().receive(until_ns)
            except TaskStopped:  # nothing comes that the task could wait for
                pass
            self.is_suspended = False
            return Resumed()
        if self.emissions >= self.every * (self.suspensions + 1):
            self.is_suspended = True
            self.suspensions += 1
            return Suspended(self.suspensions)
        return super().receive(until_ns)

    def emit(self, emission: TaskEmission) -> None:
        if emission.suspension:
            assert emission.suspension == self.suspensions
            assert not self.task.log.open_calls
            self.pauses += 1
        super().emit(emission)


@pytest.mark.parametrize("job", JOBS)
def test_a_task_whose_move_is_given_up_goes_on_to_the_end_of_its_stream(job: str) -> None:
    made = JOBS[job]()
    undisturbed = ScriptedTask(made, 3).run()
    life = ResumedTask(made, 3, 4)
    life.run()
    assert life.task.is_final
    assert life.suspensions > 1
    assert life.pauses > 0
    assert life.outputs.keys() == undisturbed.outputs.keys()
    check_continuation(life, ScriptedTask(made, 50, Start(life.log)).run())


@pytest.mark.parametrize("job", JOBS)
def test_the_successor_of_a_suspended_task_repeats_its_output_and_none_of_its_calls(job: str) -> None:
    made = JOBS[job]()
    stopped = 0
    for asked_after in range(1, ScriptedTask(made, 3).run().emissions, 2):
        first = SuspendedTask(made, 3, asked_after)
        first.run()
        if not first.has_stopped:
            assert first.task.is_final, "the end of its stream came first"
            continue
        stopped += 1
        assert not first.task.log.open_calls
        second = ScriptedTask(made, 50 + asked_after, Start(first.log)).run()
        check_continuation(first, second)
        assert second.outputs_when_live == {channel: len(elements) for channel, elements in first.outputs.items()}
        assert not set(first.performed) & set(second.performed), "a call was repeated"
        assert second.task.is_final
    assert stopped > 3


def test_a_suspended_task_without_input_stops_at_once() -> None:
    made = JOBS["work"]()
    life = SuspendedTask(made, 3, 0)
    life.run()
    assert life.has_stopped
    assert life.emissions == 1
