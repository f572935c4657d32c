"""Port of a task's thread: where it waits, and how it is stopped when the incarnation ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId, ThreadId
from clonos.core.ports.task_port import Activation, BudgetChanged, TaskStopped, Triggered
from clonos.core.wire.recovery_messages import Recourse
from clonos.operators.chain import OperatorChain
from clonos_standby.slot import task_thread
from clonos_standby.slot.task_thread import STATE_BYTES_EVERY_NS, TaskThread
from tests.harnesses.hand_waits import PlannedEvent, PlannedQueue, WaitPlan
from tests.harnesses.lone_slot import LIMIT_S, RecordingInbox, lone_surroundings, small_image


@pytest.fixture
def mailbox() -> RecordingInbox:
    return RecordingInbox()


def _port(mailbox: RecordingInbox, folder: Path) -> TaskThread:
    image = small_image()
    activation = Activation(Incarnation(1), None, None, b"", 0, 1, False, "job-1")
    thread = TaskId(0), ThreadId(7)
    return TaskThread(lone_surroundings(image, mailbox), *thread, activation, folder / "task")


@pytest.fixture
def port(mailbox: RecordingInbox, tmp_path: Path) -> Iterator[TaskThread]:
    """A port whose thread is not started: the test plays the task."""
    made = _port(mailbox, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def plan() -> WaitPlan:
    """Actions while the task of ``waiting_port`` waits."""
    return WaitPlan()


@pytest.fixture
def waiting_port(
    mailbox: RecordingInbox, tmp_path: Path, plan: WaitPlan, monkeypatch: pytest.MonkeyPatch
) -> TaskThread:
    """A port whose waits the test controls."""
    monkeypatch.setattr(task_thread, "Event", partial(PlannedEvent, plan))
    monkeypatch.setattr(task_thread, "SimpleQueue", partial(PlannedQueue, plan))
    return _port(mailbox, tmp_path)


def test_commands_arrive_in_order_and_a_poll_does_not_wait(port: TaskThread) -> None:
    trigger = Triggered(CheckpointId(1), False)
    port.put(trigger)
    port.put(BudgetChanged())
    assert port.receive(None) == trigger
    assert port.receive(0) == BudgetChanged()
    assert port.receive(0) is None
    assert port.receive(port.now_ns() + 1_000_000) is None
    assert port.receive(1) is None


def test_a_task_waits_for_a_command_until_one_comes(waiting_port: TaskThread, plan: WaitPlan) -> None:
    plan.then(lambda: waiting_port.put(BudgetChanged()))
    assert waiting_port.receive(None) == BudgetChanged()
    assert plan.is_done


def test_a_task_that_waits_for_a_command_can_be_stopped(waiting_port: TaskThread, plan: WaitPlan) -> None:
    plan.then(waiting_port.stop)
    with pytest.raises(TaskStopped):
        waiting_port.receive(None)
    assert plan.is_done


def test_a_stopped_task_receives_no_queued_command(port: TaskThread) -> None:
    port.put(BudgetChanged())
    port.stop()
    with pytest.raises(TaskStopped):
        port.receive(0)


def test_going_live_waits_for_permission(waiting_port: TaskThread, plan: WaitPlan, mailbox: RecordingInbox) -> None:
    plan.then(waiting_port.release)
    waiting_port.go_live({ChannelId(0): 7}, "another row")
    assert plan.is_done
    assert mailbox.calls == [("LogEndReached", (0, 7, {0: 7}, "another row"))]


def test_a_task_that_waits_to_go_live_can_be_stopped(waiting_port: TaskThread, plan: WaitPlan) -> None:
    plan.then(waiting_port.stop)
    with pytest.raises(TaskStopped):
        waiting_port.go_live({})
    assert plan.is_done


def test_a_call_with_an_effect_waits_until_the_keepers_hold_the_whole_log(
    waiting_port: TaskThread, plan: WaitPlan, mailbox: RecordingInbox
) -> None:
    plan.then(lambda: waiting_port.replicate_to(99), lambda: waiting_port.replicate_to(100))
    waiting_port.await_replicated(100)
    assert plan.is_done
    assert mailbox.calls == [("ReplicationAwaited", (0, 7, 100))]
    waiting_port.await_replicated(100)  # not again


def test_a_task_that_waits_for_its_keepers_can_be_stopped(waiting_port: TaskThread, plan: WaitPlan) -> None:
    plan.then(waiting_port.stop)
    with pytest.raises(TaskStopped):
        waiting_port.await_replicated(1)
    assert plan.is_done


def test_a_single_step_task_waits_until_its_step_is_acknowledged(
    waiting_port: TaskThread, plan: WaitPlan, mailbox: RecordingInbox
) -> None:
    for first_seq in (17, 18):  # what was noted once counts for that element only
        plan.then(waiting_port.note)
        waiting_port.announce_step(ChannelId(0), first_seq)
        assert plan.is_done
    assert mailbox.calls == [("StepAnnounced", (0, 7, 0, 17)), ("StepAnnounced", (0, 7, 0, 18))]


def test_a_single_step_task_that_waits_can_be_stopped(waiting_port: TaskThread, plan: WaitPlan) -> None:
    plan.then(waiting_port.stop)
    with pytest.raises(TaskStopped):
        waiting_port.announce_step(ChannelId(0), 17)
    assert plan.is_done


def test_an_ended_incarnation_makes_no_call(port: TaskThread) -> None:
    called: list[str] = []
    assert port.perform(called.append, "a key") is None
    port.stop()
    with pytest.raises(TaskStopped):
        port.perform(called.append, "another key")
    assert called == ["a key"]


def test_a_call_during_which_the_incarnation_ends_has_no_outcome(port: TaskThread) -> None:
    with pytest.raises(TaskStopped):
        port.perform(lambda _: port.stop(), "a key")


def test_a_task_that_cannot_start_reports_the_reason(port: TaskThread, mailbox: RecordingInbox, tmp_path: Path) -> None:
    (tmp_path / "task").write_text("a file where the folder of the incarnation should be")
    port.thread.start()
    port.thread.join()
    [(name, (_, failed, _))] = mailbox.calls
    assert name == "ThreadRaised"
    assert failed.recourse is Recourse.ELSEWHERE
    assert "FileExistsError" in failed.error


def test_a_stopped_task_ends_its_thread_without_a_report(port: TaskThread, mailbox: RecordingInbox) -> None:
    port.thread.start()
    port.stop()
    port.thread.join(LIMIT_S)
    assert not port.thread.is_alive()
    assert "ThreadRaised" not in mailbox.names()


def test_the_memory_of_state_is_measured_once_per_second(port: TaskThread, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10, 10 + STATE_BYTES_EVERY_NS - 1, 10 + STATE_BYTES_EVERY_NS])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(moments))
    port._chain = chain = create_autospec(OperatorChain, instance=True)
    chain.state_bytes.side_effect = [5, 7]
    assert [port.state_bytes() for _ in range(3)] == [5, 5, 7]
