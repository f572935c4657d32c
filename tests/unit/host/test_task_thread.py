"""The door of a task's thread: it waits where it must, and lets go as soon as the incarnation is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos.core.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.ports import Activation, GateMoved, TaskStopped, Triggered
from clonos.io.wall_clock import SlewedClock
from clonos_standby.task_thread import TaskThread
from tests.unit.host.lone_slot import LIMIT_S, Mailbox, lone_slot, small_image


class Waiter:
    """Makes one call in a thread of its own. ``outcome``: what it returned or raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.outcome: list[Any] = []
        self._done = threading.Event()

        def run() -> None:
            try:
                self.outcome.append(call())
            except TaskStopped as stopped:
                self.outcome.append(stopped)
            self._done.set()

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def is_waiting(self) -> bool:
        return not self._done.wait(0.03)

    def get(self) -> Any:
        assert self._done.wait(LIMIT_S)
        self._thread.join()
        return self.outcome[0]


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def port(mailbox: Mailbox, tmp_path: Path) -> Iterator[TaskThread]:
    """Its thread is not started: the test is the task."""
    image = small_image()
    activation = Activation(None, None, b"", 0, 1, False, "job-1")
    clock = SlewedClock()
    made = TaskThread(lone_slot(image), mailbox, image, clock, TaskId(0), Incarnation(1), activation, tmp_path / "task")
    yield made
    made.stop()


def test_commands_come_in_order_and_none_is_waited_for_when_it_is_not_asked(port: TaskThread) -> None:
    trigger = Triggered(CheckpointId(1), False)
    port.put(trigger)
    port.put(GateMoved())
    assert port.receive(None) == trigger
    assert port.receive(0) == GateMoved()
    assert port.receive(0) is None
    assert port.receive(port.now_ns() + 1_000_000) is None
    assert port.receive(1) is None


def test_a_task_that_waits_for_a_command_is_stopped(port: TaskThread) -> None:
    waiter = Waiter(lambda: port.receive(None))
    assert waiter.is_waiting()
    port.stop()
    assert isinstance(waiter.get(), TaskStopped)


def test_a_stopped_task_gets_no_command_that_waited(port: TaskThread) -> None:
    port.put(GateMoved())
    port.stop()
    with pytest.raises(TaskStopped):
        port.receive(0)


def test_going_live_waits_for_leave(port: TaskThread, mailbox: Mailbox) -> None:
    waiter = Waiter(lambda: port.go_live({ChannelId(0): 7}))
    assert waiter.is_waiting()
    assert mailbox.calls == [("on_log_end", (0, 1, {0: 7}))]
    port.release()
    assert waiter.get() is None


def test_a_task_that_waits_for_leave_is_stopped(port: TaskThread) -> None:
    waiter = Waiter(lambda: port.go_live({}))
    assert waiter.is_waiting()
    port.stop()
    assert isinstance(waiter.get(), TaskStopped)


def test_a_call_with_an_effect_waits_until_the_keepers_hold_the_whole_log(port: TaskThread, mailbox: Mailbox) -> None:
    waiter = Waiter(lambda: port.await_kept(100))
    assert waiter.is_waiting()
    assert mailbox.calls == [("on_await_kept", (0, 1, 100))]
    port.keep_to(99)
    assert waiter.is_waiting()
    port.keep_to(100)
    assert waiter.get() is None
    port.await_kept(100)


def test_a_task_that_waits_for_its_keepers_is_stopped(port: TaskThread) -> None:
    waiter = Waiter(lambda: port.await_kept(1))
    assert waiter.is_waiting()
    port.stop()
    assert isinstance(waiter.get(), TaskStopped)


def test_an_incarnation_that_is_over_calls_nobody(port: TaskThread) -> None:
    called: list[str] = []
    assert port.perform(called.append, "a key") is None
    port.stop()
    with pytest.raises(TaskStopped):
        port.perform(called.append, "another key")
    assert called == ["a key"]


def test_a_call_during_which_the_incarnation_ends_has_no_outcome(port: TaskThread) -> None:
    with pytest.raises(TaskStopped):
        port.perform(lambda _: port.stop(), "a key")


def test_a_task_that_cannot_even_begin_says_why(port: TaskThread, mailbox: Mailbox, tmp_path: Path) -> None:
    (tmp_path / "task").write_text("a file where the folder of the incarnation should be")
    port.thread.start()
    port.thread.join()
    [(name, (failed,))] = mailbox.calls
    assert name == "on_raised"
    assert failed.is_fatal
    assert "FileExistsError" in failed.error


def test_a_task_that_is_stopped_ends_its_thread_and_says_nothing(port: TaskThread, mailbox: Mailbox) -> None:
    port.thread.start()
    port.stop()
    port.thread.join(LIMIT_S)
    assert not port.thread.is_alive()
    assert "on_raised" not in mailbox.names()
