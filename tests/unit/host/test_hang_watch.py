"""Watch for steps that hang: the step and the line of a task's thread that makes no progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest

from clonos.core.model.ids import Incarnation, TaskId, ThreadId
from clonos.core.ports.operator_chain import Collector
from clonos.core.ports.slot_effects import Warn
from clonos.core.ports.task_port import Activation, TaskStopped
from clonos.operators.user_errors import Guard
from clonos_standby.slot.hang_watch import HangWatch
from clonos_standby.slot.task_thread import TaskThread
from tests.harnesses.lone_slot import LIMIT_S, RecordingInbox, lone_surroundings, small_image

SECOND = 1_000_000_000


@dataclass(eq=False)
class Working:
    """A thread of a task whose step hangs until it is released."""

    task_name: str = "ask/0"
    turns: int = 1
    is_inside: threading.Event = field(default_factory=threading.Event)
    is_released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        guard = Guard("enrich", True, cast("Collector", None), None)
        self.thread = threading.Thread(target=lambda: guard.each(self.spin, [1]), name="working")

    def spin(self, _record: object) -> None:
        """A function of a user that does not end."""
        while not self.is_released.is_set():
            self.is_inside.set()  # the line that hangs

    def __enter__(self) -> Working:
        self.thread.start()
        assert self.is_inside.wait(LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.is_released.set()
        self.thread.join()


@pytest.fixture
def warnings() -> list[Warn]:
    return []


@pytest.fixture
def watch(warnings: list[Warn]) -> HangWatch:
    return HangWatch(warnings.append)


@pytest.fixture
def spinning() -> Iterator[Working]:
    """A task whose step hangs."""
    with Working() as spinning:
        yield spinning


def test_a_step_that_hangs_is_named_with_its_line_after_5_seconds_and_again_ever_more_rarely(
    watch: HangWatch, warnings: list[Warn], spinning: Working
) -> None:
    seconds: list[int] = []
    for second in range(60):
        watch.look([spinning], second * SECOND)
        seconds += [second] * (len(warnings) - len(seconds))
    assert seconds == [5, 10, 20, 40]
    assert warnings[0].fields == {"task": "ask/0"}
    text = warnings[1].text
    assert text.startswith("step 'enrich' of task ask/0 has been at work on the same input for 10 s: test_hang_watch")
    assert " in spin: " in text
    assert text.endswith(("while not self.is_released.is_set():", "self.is_inside.set()  # the line that hangs"))


def test_a_task_that_makes_progress_is_not_named(watch: HangWatch, warnings: list[Warn], spinning: Working) -> None:
    for second in range(60):
        spinning.turns += second % 4 == 0
        watch.look([spinning], second * SECOND)
    assert warnings == []


def test_a_task_that_waits_for_input_is_not_named(watch: HangWatch, warnings: list[Warn], tmp_path: Path) -> None:
    activation = Activation(Incarnation(1), None, None, b"", 0, 1, False, "job-1")
    surroundings = lone_surroundings(small_image(), RecordingInbox())
    port = TaskThread(surroundings, TaskId(0), ThreadId(7), activation, tmp_path / "task")
    begun: SimpleQueue[None] = SimpleQueue()

    def wait() -> None:
        begun.put(None)
        with pytest.raises(TaskStopped):
            port.receive(None)

    port.thread = threading.Thread(target=wait)
    port.thread.start()
    begun.get(timeout=LIMIT_S)
    while port.turns == 0:  # it has entered
        pass
    for second in range(60):
        watch.look([port], second * SECOND)
    port.stop()
    port.thread.join()
    assert warnings == []
