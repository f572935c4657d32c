"""Thread of an immediate sink: writes in order, merged while they wait, retried, and stopped once it is fenced."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from clonos.connectors.kit.external_system import NumberLost
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.model.ids import ChannelId, TaskId
from clonos.core.ports.recorder import confined_services
from clonos.core.values import encode_rows
from clonos.core.wire.recovery_messages import InputRange, Recourse
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity
from clonos_services import clock
from clonos_standby.slot import sink_thread
from clonos_standby.slot.sink_thread import SinkThread
from tests.harnesses.lone_slot import LIMIT_S, WaitingInbox, lone_surroundings, small_image


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

    def immediate_writer(self) -> Ledger:
        return self

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
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


def begin(ledger: Ledger, reported: WaitingInbox) -> SinkThread:
    identity = WriterIdentity("job-1", "sink/0", 1, 7)
    return SinkThread(
        lone_surroundings(small_image(), reported),
        ledger,
        identity,
        0,
        TaskId(0),
        ChannelId(4),
        backoff_first_s=0.001,
        backoff_s_max=0.002,
    )


def end(thread: SinkThread) -> None:
    thread.close()
    thread.thread.join(LIMIT_S)
    assert not thread.thread.is_alive()


def test_writes_follow_the_registration_and_are_confirmed_in_order() -> None:
    ledger, reported = Ledger(), WaitingInbox()
    thread = begin(ledger, reported)
    assert reported.next() == ("SinkOpened", (0, 7, 0, None, True))
    thread.write(0, 2, ElementKind.ROWS, encode_rows(["a", "b"]))
    assert reported.next() == ("SinkConfirmed", (0, 7, 2))
    thread.write(2, 1, ElementKind.ROWS, encode_rows(["c"]))
    assert reported.next() == ("SinkConfirmed", (0, 7, 3))
    end(thread)
    assert ledger.rows == ["a", "b", "c"]
    assert ledger.closed == 1


class TimedLedger(Ledger):
    """Uses a service wherever a connector's code runs."""

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        clock.now()
        return super().register(identity, restored_number)

    def write(self, first_number: int, rows: list[Any]) -> int:
        return super().write(first_number, [clock.now() for _ in rows])

    def close(self) -> None:
        clock.now()
        super().close()


def test_a_connector_may_use_services_in_its_own_thread() -> None:
    ledger, reported = TimedLedger(), WaitingInbox()
    with confined_services():
        thread = begin(ledger, reported)
        thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
        assert [reported.next()[0] for _ in range(2)] == ["SinkOpened", "SinkConfirmed"]
        end(thread)
    assert (len(ledger.rows), ledger.closed) == (1, 1)


def test_waiting_writes_are_merged_into_one() -> None:
    ledger, reported = Ledger(is_held=True), WaitingInbox()
    thread = begin(ledger, reported)
    for number in range(50):
        thread.write(number, 1, ElementKind.ROWS, encode_rows([number]))
    thread.write(60, 1, ElementKind.ROWS, encode_rows(["after a gap"]))
    ledger.may_go_on.set()
    assert reported.next()[0] == "SinkOpened"
    assert reported.next() == ("SinkConfirmed", (0, 7, 50))
    assert reported.next()[0] == "SinkConfirmed"
    end(thread)
    assert ledger.writes == [(0, list(range(50))), (60, ["after a gap"])]


def test_a_failed_call_is_retried_on_a_new_registered_connection() -> None:
    ledger, reported = Ledger(ConnectionError("no"), None, TimeoutError("late"), None, None), WaitingInbox()
    thread = begin(ledger, reported)
    assert reported.next()[0] == "SinkOpened"
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
    assert reported.next() == ("SinkConfirmed", (0, 7, 1))
    end(thread)
    assert ledger.rows == ["a"]
    assert ledger.registered >= 2


class Superseding(Ledger):
    """Answers the first registration of a generation with what had left before, and later ones without."""

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        answer = super().register(identity, restored_number)
        return Registration(answer.next_number, 9) if self.registered == 1 else answer


def test_a_repeated_registration_still_reports_the_rows_already_written() -> None:
    ledger, reported = Superseding(ConnectionError("no")), WaitingInbox()
    thread = begin(ledger, reported)
    assert reported.next() == ("SinkOpened", (0, 7, 0, 9, True))
    end(thread)


class Forgetting(Ledger):
    """Keeps something for withdrawals."""

    def __init__(self, *faults: Exception | None) -> None:
        super().__init__(*faults)
        self.forgotten: list[tuple[int, int]] = []  # (before, how many rows were there)

    def forget(self, before_number: int) -> None:
        self._raise()
        self.forgotten.append((before_number, len(self.rows)))


def test_truncation_is_sent_after_the_writes_so_far() -> None:
    ledger, reported = Forgetting(), WaitingInbox()
    ledger.may_go_on.clear()
    thread = begin(ledger, reported)
    thread.forget(0)
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
    thread.forget(1)
    thread.write(1, 1, ElementKind.ROWS, encode_rows(["b"]))
    thread.forget(2)
    ledger.may_go_on.set()
    assert [reported.next()[0] for _ in range(3)] == ["SinkOpened", *["SinkConfirmed"] * 2]
    thread.write(2, 1, ElementKind.ROWS, encode_rows(["c"]))
    assert reported.next() == ("SinkConfirmed", (0, 7, 3))
    end(thread)
    assert ledger.forgotten == [(0, 0), (1, 1), (2, 2)]


def test_an_external_system_that_fails_to_truncate_stays_registered() -> None:
    ledger, reported = Forgetting(None, None, EnvironmentFault("busy"), None), WaitingInbox()
    thread = begin(ledger, reported)
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
    thread.forget(1)
    assert [reported.next()[0] for _ in range(2)] == ["SinkOpened", "SinkConfirmed"]
    thread.write(1, 1, ElementKind.ROWS, encode_rows(["b"]))
    assert reported.next() == ("SinkConfirmed", (0, 7, 2))
    end(thread)
    assert ledger.forgotten == []
    assert ledger.registered == 2
    assert ledger.rows == ["a", "b"]


def test_an_external_system_that_fails_for_too_long_fails_the_incarnation_retriably() -> None:
    ledger, reported = Ledger(*[EnvironmentFault("down")] * 100), WaitingInbox()
    thread = begin(ledger, reported)
    name, (failed,) = reported.next()
    assert name == "PartFailed"
    assert failed.recourse is Recourse.RETRY
    assert "EnvironmentFault: down" in failed.error
    assert len(ledger.faults) == 100 - sink_thread.ATTEMPTS_MAX
    end(thread)


def test_an_external_system_that_has_lost_its_number_fails_the_job_at_once() -> None:
    ledger, reported = Ledger(*[NumberLost("the group", 3, "it is gone", "Keep it")] * 2), WaitingInbox()
    thread = begin(ledger, reported)
    name, (failed,) = reported.next()
    assert name == "PartFailed"
    assert failed.recourse is Recourse.NONE
    assert "NumberLost: the group has no number" in failed.error
    assert len(ledger.faults) == 1
    end(thread)


def test_rows_that_the_external_system_rejects_fail_the_job_at_once_with_their_numbers() -> None:
    ledger, reported = Ledger(None, JobError("no such column")), WaitingInbox()
    thread = begin(ledger, reported)
    assert reported.next()[0] == "SinkOpened"
    thread.write(0, 2, ElementKind.ROWS, encode_rows(["a", "b"]))
    name, (failed,) = reported.next()
    assert name == "PartFailed"
    assert failed.recourse is Recourse.NONE
    assert failed.at == InputRange(ChannelId(4), 0, 2)
    end(thread)


@pytest.mark.parametrize("by", [None, (2, 7)], ids=["unknown", "known"])
def test_a_fenced_writer_stops_and_reports_what_fenced_it(by: tuple[int, int] | None) -> None:
    ledger, reported = Ledger(None, WriterFenced("a later one writes", by)), WaitingInbox()
    thread = begin(ledger, reported)
    assert reported.next()[0] == "SinkOpened"
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["a"]))
    thread.thread.join(LIMIT_S)
    assert not thread.thread.is_alive()
    name, arguments = reported.next()
    if by is None:  # so the task restarts, unless a view that ends it is on its way
        assert (name, arguments[0].recourse) == ("PartFailed", Recourse.RETRY)
        assert "WriterFenced: a later one writes" in arguments[0].error
    else:
        assert (name, arguments[2:]) == ("SinkWriterFenced", by)
    assert reported.is_empty()
    assert ledger.rows == []


class LingeringLedger(Ledger):
    """A sink with a long time between two writes."""

    linger_ms = 1_000 * LIMIT_S


def test_a_sink_that_lingers_has_its_next_write_when_enough_rows_wait() -> None:
    ledger, reported = LingeringLedger(), WaitingInbox()
    thread = begin(ledger, reported)
    assert reported.next()[0] == "SinkOpened"
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["first"]))
    assert reported.next() == ("SinkConfirmed", (0, 7, 1))
    most = sink_thread.JOINED_ROWS_MAX
    thread.write(1, most - 1, ElementKind.ROWS, encode_rows(list(range(most - 1))))
    thread.write(most, 1, ElementKind.ROWS, encode_rows(["last"]))
    assert reported.next() == ("SinkConfirmed", (0, 7, most + 1))
    end(thread)
    assert [(first, len(rows)) for first, rows in ledger.writes] == [(0, 1), (1, most)]


def test_a_sink_that_lingers_ends_without_waiting() -> None:
    ledger, reported = LingeringLedger(), WaitingInbox()
    thread = begin(ledger, reported)
    thread.write(0, 1, ElementKind.ROWS, encode_rows(["first"]))
    assert [reported.next()[0] for _ in range(2)] == ["SinkOpened", "SinkConfirmed"]
    thread.write(1, 1, ElementKind.ROWS, encode_rows(["second"]))
    end(thread)
    assert len(ledger.writes) <= 2


def test_a_system_that_stays_away_is_reported_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = iter((0.0, 1.0, 59.0, 60.0, 61.0))
    monkeypatch.setattr(sink_thread, "monotonic", lambda: next(now_s))
    monkeypatch.setattr(sink_thread, "warned_s", {})
    with caplog.at_level(logging.WARNING, "clonos.slot"):
        for attempt in range(5):
            sink_thread.warn_of_failure("write/0", EnvironmentFault(f"away, attempt {attempt}"))
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == ["0", "3"]
