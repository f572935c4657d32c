"""An immediate sink's thread: in order, joined where they wait, tried again, and silent once it is fenced."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.model.ids import ChannelId, TaskId
from clonos.core.ports.recorder import confined_services
from clonos.core.values import encode_rows
from clonos.core.wire.recovery_messages import InputRange, Recourse
from clonos.operators.connector_contract import OutsideFenced, OutsideIdentity, Registration
from clonos_services import clock
from clonos_standby.slot import sink_thread
from clonos_standby.slot.sink_thread import SinkThread
from tests.harnesses.lone_slot import LIMIT_S, Mailbox, lone_surroundings, small_image


class Ledger:
    """A sink and its outside: rows by number. ``faults``: raised by the next calls, one each; None lets one pass."""

    def __init__(self, *faults: Exception | None, is_held: bool = False) -> None:
        self.rows: list[Any] = []
        self.writes: list[tuple[int, list[Any]]] = []
        self.faults = list(faults)
        self.registered = 0
        self.closed = 0
        self.may_go_on = threading.Event()
        if not is_held:
            self.may_go_on.set()

    def outside(self) -> Ledger:
        return self

    def register(self, identity: OutsideIdentity, restored_number: int) -> Registration:
        assert self.may_go_on.wait(LIMIT_S)
        self._raise()
        self.registered += 1
        return Registration(len(self.rows), None)

    def write(self, first_number: int, rows: list[Any]) -> int:
        self._raise()
        self.writes.append((first_number, rows))
        self.rows[first_number:] = rows
        return len(self.rows)

    def close(self) -> None:
        self.closed += 1

    def _raise(self) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault


class Told(Mailbox):
    """Calls can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: queue.Queue[tuple[str, tuple[Any, ...]]] = queue.Queue()

    def put(self, call: Any, *arguments: Any) -> None:
        self._queue.put((call.__name__, arguments))

    def next(self) -> tuple[str, tuple[Any, ...]]:
        return self._queue.get(timeout=LIMIT_S)

    def is_empty(self) -> bool:
        return self._queue.empty()


def begin(ledger: Ledger, told: Told) -> SinkThread:
    identity = OutsideIdentity("job-1", "sink/0", 1, 7)
    return SinkThread(lone_surroundings(small_image(), told), ledger, identity, 0, TaskId(0), ChannelId(4))


def end(thread: SinkThread) -> None:
    thread.close()
    thread.thread.join(LIMIT_S)
    assert not thread.thread.is_alive()


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_thread, "BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(sink_thread, "BACKOFF_S_MAX", 0.002)


def test_what_is_written_is_registered_first_and_confirmed_in_order() -> None:
    ledger, told = Ledger(), Told()
    thread = begin(ledger, told)
    assert told.next() == ("on_outside_opened", (0, 7, 0, None))
    thread.write(0, 2, ElementKind.ROWS, encode_rows(["a", "b"]))
    assert told.next() == ("on_outside_confirmed", (0, 7, 2))
    thread.write(2, 1, ElementKind.ROWS, encode_rows(["c"]))
    assert told.next() == ("on_outside_confirmed", (0, 7, 3))
    end(thread)
    assert ledger.rows == ["a", "b", "c"]
    assert ledger.closed == 1


class TimedLedger(Ledger):
    """Uses a service wherever a connector's code runs."""

    def register(self, identity: OutsideIdentity, restored_number: int) -> Registration:
        clock.now()
        return super().register(identity, restored_number)

    def write(self, first_number: int, rows: list[Any]) -> int:
        return super().write(first_number, [clock.now() for _ in rows])

    def close(self) -> None:
        clock.now()
        super().close()


def test_a_connector_may_use_services_beside_its_task() -> None:
    ledger, told = TimedLedger(), Told()
    with confined_services():
        thread = begin(ledger, told)
        thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
        assert [told.next()[0] for _ in range(2)] == ["on_outside_opened", "on_outside_confirmed"]
        end(thread)
    assert (len(ledger.rows), ledger.closed) == (1, 1)


def test_writes_that_wait_become_one() -> None:
    ledger, told = Ledger(is_held=True), Told()
    thread = begin(ledger, told)
    for number in range(50):
        thread.write(number, 1, ElementKind.ROWS, encode_rows([number]))
    thread.write(60, 1, ElementKind.ROWS, encode_rows(["behind a gap"]))
    ledger.may_go_on.set()
    assert told.next()[0] == "on_outside_opened"
    assert told.next() == ("on_outside_confirmed", (0, 7, 50))
    assert told.next()[0] == "on_outside_confirmed"
    end(thread)
    assert ledger.writes == [(0, list(range(50))), (60, ["behind a gap"])]


def test_a_failed_call_is_made_again_on_a_new_connection_that_is_registered() -> None:
    ledger, told = Ledger(ConnectionError("no"), None, TimeoutError("late"), None, None), Told()
    thread = begin(ledger, told)
    assert told.next()[0] == "on_outside_opened"
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
    assert told.next() == ("on_outside_confirmed", (0, 7, 1))
    end(thread)
    assert ledger.rows == ["a"]
    assert ledger.registered >= 2


class Superseding(Ledger):
    """Answers the first registration of a generation with what had left before, and later ones without."""

    def register(self, identity: OutsideIdentity, restored_number: int) -> Registration:
        answer = super().register(identity, restored_number)
        return Registration(answer.next_number, 9) if self.registered == 1 else answer


def test_a_registration_that_is_tried_again_still_says_what_had_left() -> None:
    ledger, told = Superseding(ConnectionError("no")), Told()
    thread = begin(ledger, told)
    assert told.next() == ("on_outside_opened", (0, 7, 0, 9))
    end(thread)


class Forgetting(Ledger):
    """Keeps something for withdrawals."""

    def __init__(self, *faults: Exception | None) -> None:
        super().__init__(*faults)
        self.forgotten: list[tuple[int, int]] = []  # (before, how many rows were there)

    def forget(self, before_number: int) -> None:
        self._raise()
        self.forgotten.append((before_number, len(self.rows)))


def test_what_may_be_forgotten_is_told_behind_the_writes_so_far() -> None:
    ledger, told = Forgetting(), Told()
    ledger.may_go_on.clear()
    thread = begin(ledger, told)
    thread.forget(0)
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
    thread.forget(1)
    thread.write(1, 1, ElementKind.ROWS, encode_rows(["b"]))
    thread.forget(2)
    ledger.may_go_on.set()
    assert [told.next()[0] for _ in range(3)] == ["on_outside_opened", *["on_outside_confirmed"] * 2]
    thread.write(2, 1, ElementKind.ROWS, encode_rows(["c"]))
    assert told.next() == ("on_outside_confirmed", (0, 7, 3))
    end(thread)
    assert ledger.forgotten == [(0, 0), (1, 1), (2, 2)]


def test_an_outside_that_cannot_forget_goes_on_registered() -> None:
    ledger, told = Forgetting(None, None, EnvironmentFault("busy"), None), Told()
    thread = begin(ledger, told)
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
    thread.forget(1)
    assert [told.next()[0] for _ in range(2)] == ["on_outside_opened", "on_outside_confirmed"]
    thread.write(1, 1, ElementKind.ROWS, encode_rows(["b"]))
    assert told.next() == ("on_outside_confirmed", (0, 7, 2))
    end(thread)
    assert ledger.forgotten == []
    assert ledger.registered == 2
    assert ledger.rows == ["a", "b"]


def test_an_outside_that_fails_for_too_long_fails_the_incarnation_which_may_be_tried_again() -> None:
    ledger, told = Ledger(*[EnvironmentFault("down")] * 100), Told()
    thread = begin(ledger, told)
    name, (failed,) = told.next()
    assert name == "on_failed"
    assert failed.recourse is Recourse.RETRY
    assert "EnvironmentFault: down" in failed.error
    assert len(ledger.faults) == 100 - sink_thread.ATTEMPTS_MAX
    end(thread)


def test_rows_that_the_outside_refuses_fail_the_job_at_once_with_their_numbers() -> None:
    ledger, told = Ledger(None, JobError("no such column")), Told()
    thread = begin(ledger, told)
    assert told.next()[0] == "on_outside_opened"
    thread.write(0, 2, ElementKind.ROWS, encode_rows(["a", "b"]))
    name, (failed,) = told.next()
    assert name == "on_failed"
    assert failed.recourse is Recourse.NONE
    assert failed.at == InputRange(ChannelId(4), 0, 2)
    end(thread)


@pytest.mark.parametrize("by", [None, (2, 7)], ids=["whoever it is", "and who it is"])
def test_one_that_is_fenced_writes_no_more_and_says_by_whom(by: tuple[int, int] | None) -> None:
    ledger, told = Ledger(None, OutsideFenced("later", by)), Told()
    thread = begin(ledger, told)
    assert told.next()[0] == "on_outside_opened"
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
    thread.thread.join(LIMIT_S)
    assert not thread.thread.is_alive()
    if by is not None:
        name, arguments = told.next()
        assert (name, arguments[2:]) == ("on_outside_fenced", by)
    assert told.is_empty()
    assert ledger.rows == []
