"""The current task of a service, and the rule of the coarse clock."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from clonos.core.ports.recorder import (
    RecordingSuspended,
    ServiceWithoutTask,
    bind,
    confined_services,
    current,
    running,
    tick_due_ns,
    unbind,
)
from clonos_services import clock, http, random
from clonos_services.identity import uuid4
from clonos_services.service import service
from tests.harnesses.fake_recorder import FakeRecorder


@service
def answer() -> int:
    return 42


def test_outside_of_running_no_task_is_current() -> None:
    recorder = FakeRecorder()
    assert current() is None
    with running(recorder):
        assert current() is recorder
    assert current() is None


def test_a_binding_ends_with_its_token() -> None:
    recorder = FakeRecorder()
    token = bind(recorder)
    assert current() is recorder
    unbind(token)
    assert current() is None


def test_a_task_is_not_current_in_another_thread() -> None:
    seen: list[object] = []
    with running(FakeRecorder()):
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_no_task_is_current_during_an_external_call() -> None:
    recorder = FakeRecorder()
    with running(recorder):
        with RecordingSuspended():
            assert current() is None
        assert current() is recorder


@pytest.mark.parametrize(
    "use",
    [clock.now, clock.time, clock.monotonic, random.random, random.numpy().normal, uuid4, answer],
    ids=["now", "time", "monotonic", "random", "numpy", "uuid4", "service"],
)
def test_in_a_slot_a_service_call_outside_a_task_is_refused(use: Callable[[], object]) -> None:
    use()
    with confined_services():
        with pytest.raises(ServiceWithoutTask, match="not by the thread of a task"):
            use()
        with pytest.raises(ServiceWithoutTask, match=r"http\.get"):
            http.get("http://127.0.0.1:9/")
        with running(FakeRecorder()):
            use()
            with RecordingSuspended():
                use()
    use()


def test_a_clock_tick_is_recorded_once_at_its_beginning() -> None:
    assert tick_due_ns(0, 25, tick_ns=10) == 20
    assert tick_due_ns(20, 29, tick_ns=10) is None
    assert tick_due_ns(20, 30, tick_ns=10) == 30


def test_a_clock_tick_is_never_earlier_than_an_exact_reading() -> None:
    assert tick_due_ns(26, 29, tick_ns=10) is None
