"""Connections of sources that cannot be re-read, on loopback: received lines, acknowledgements and ends."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import blackhole, sockets
from clonos.core.model.errors import ProducerGivenUp
from clonos.core.model.ids import Incarnation, TaskId
from clonos.core.model.options import Options
from clonos.core.ports.recorder import confined_services
from clonos.core.wire.recovery_messages import Recourse
from clonos.operators.connector_contract import ProducerConnection
from clonos.operators.journal_source import END_OF_JOURNAL
from clonos_services import clock
from clonos_standby.slot import journal_thread
from clonos_standby.slot.journal_thread import JournalThread, JournalThreads
from tests.harnesses.hand_waits import PlannedEvent, WaitPlan
from tests.harnesses.lone_slot import LIMIT_S, WaitingInbox, lone_surroundings, small_image

LIFE = (TaskId(0), Incarnation(7))


class JournalInbox(WaitingInbox):
    """The events of the thread of one source, all about the same incarnation."""

    def next(self) -> tuple[str, Any]:
        """Name and last argument of the next event."""
        name, arguments = super().next()
        if name == "PartFailed":
            return name, arguments[0]
        assert arguments[:2] == LIFE
        return name, arguments[2]

    def journal(self, size: int) -> bytes:
        """The next ``size`` bytes that were received."""
        data = b""
        while len(data) < size:
            name, more = self.next()
            assert name == "ProducerDataRead", more
            data += more
        return data


class JournalHarness:
    """A server, a job that reads from it, and what its thread tells."""

    def __init__(self, server: socket.socket) -> None:
        self.server = server
        self.reported = JournalInbox()
        graph = JobGraph("pushed")
        source = sockets.lines("127.0.0.1", server.getsockname()[1], acknowledge=True, line_bytes_max=100)
        graph.source(source).sink(blackhole())
        image = graph.compile(Options())
        self.threads = JournalThreads(lone_surroundings(image, self.reported))

    def open(self, offset_bytes: int = 0) -> socket.socket:
        """Connects; the server's end, which has heard where to begin."""
        self.threads.open(*LIFE, offset_bytes)
        connection = self.server.accept()[0]
        connection.settimeout(LIMIT_S)
        assert connection.recv(100) == b"%d\n" % offset_bytes
        return connection


class TimedFeed(ProducerConnection):
    """A connection that is never made, of a connector that uses a service at each turn."""

    def __init__(self) -> None:
        self.is_closed = False
        self.received = 0  # how often it was asked
        clock.now()

    def receive(self, wait_ms: int) -> bytes | None:
        clock.now()
        self.received += 1
        return None

    def acknowledge(self, offset_bytes: int) -> None:
        clock.now()

    def close(self) -> None:
        clock.now()
        self.is_closed = True


class TimedSource:
    def __init__(self) -> None:
        self.feeds: list[TimedFeed] = []

    def connect(self, offset_bytes: int) -> TimedFeed:
        self.feeds.append(TimedFeed())
        return self.feeds[-1]


def test_a_connector_may_use_services_in_its_own_thread() -> None:
    source, reported = TimedSource(), JournalInbox()
    thread = JournalThread(lone_surroundings(small_image(), reported), source, "pushed/0", 0, *LIFE)  # type: ignore[arg-type]
    with confined_services():
        thread.thread.start()
        assert reported.next() == ("ProducerDataRead", END_OF_JOURNAL)
        thread.thread.join(LIMIT_S)
    assert not thread.thread.is_alive()
    assert [feed.is_closed for feed in source.feeds] == [True]


class PatienceOver(ProducerGivenUp):
    patience: str

    def __str__(self) -> str:
        return f"it has failed for {self.patience}"


@pytest.mark.parametrize(
    ("error", "event"), [(PatienceOver("5min"), "PartFailed"), (OSError("broke"), "ProducerFailed")]
)
def test_a_connector_that_gives_up_ends_the_job_and_one_whose_connection_breaks_does_not(
    error: Exception, event: str
) -> None:
    class Feed(TimedFeed):
        def receive(self, wait_ms: int) -> bytes | None:
            raise error

    class Source(TimedSource):
        def connect(self, offset_bytes: int) -> TimedFeed:
            return Feed()

    source, reported = Source(), JournalInbox()
    thread = JournalThread(lone_surroundings(small_image(), reported), source, "pushed/0", 0, *LIFE)  # type: ignore[arg-type]
    with confined_services():
        thread.thread.start()
        name, recorded = reported.next()
        thread.thread.join(LIMIT_S)
    assert name == event
    assert str(error) in (recorded if event == "ProducerFailed" else recorded.error)


class ContinuedFeed(TimedFeed):
    """A connection that gives a record, then breaks."""

    def __init__(self, record: bytes) -> None:
        super().__init__()
        self._record = record

    def receive(self, wait_ms: int) -> bytes | None:
        self.received += 1
        if self.received > 1:
            raise ConnectionError("it broke")
        return self._record


class Continued:
    """A producer whose connections each give one record, the next number."""

    def __init__(self) -> None:
        self.cursors: list[bytes | None] = []

    def connect(self, offset_bytes: int) -> TimedFeed:
        raise AssertionError(offset_bytes)

    def connect_at(self, offset_bytes: int, cursor: bytes | None) -> TimedFeed:
        self.cursors.append(cursor)
        return ContinuedFeed(b"%d\n" % (int(cursor or 0) + 1))

    def cut(self, data: bytes) -> list[bytes]:
        return data.splitlines(keepends=True)

    def decode(self, records: list[bytes]) -> list[int]:
        return [int(record) for record in records]

    def cursor(self, record: bytes) -> bytes:
        return record.strip()


def test_each_connection_continues_after_what_was_received() -> None:
    source, reported = Continued(), JournalInbox()
    graph = JobGraph("continued")
    graph.source(source).sink(blackhole())
    threads = JournalThreads(lone_surroundings(graph.compile(Options()), reported))
    for number in (8, 9):
        threads.open(*LIFE, 2, b"7")  # what the incarnation has found is older, the second time
        assert reported.next() == ("ProducerDataRead", b"%d\n" % number)
        assert reported.next()[0] == "ProducerFailed"
    for thread in threads.close_all():
        thread.join(LIMIT_S)
    assert source.cursors == [b"7", b"8"]


@pytest.fixture
def bench() -> Iterator[JournalHarness]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT_S)
        made = JournalHarness(server)
        yield made
        for thread in made.threads.close_all():
            thread.join(LIMIT_S)
            assert not thread.is_alive()


def test_whole_lines_are_delivered_and_the_server_receives_replicated_offsets(bench: JournalHarness) -> None:
    with bench.open(100) as connection:
        connection.sendall(b"one\ntwo\nthr")
        assert bench.reported.journal(8) == b"one\ntwo\n"
        bench.threads.acknowledge(*LIFE, 104)
        assert connection.recv(100) == b"104\n"
        connection.sendall(b"ee\n")
        assert bench.reported.journal(6) == b"three\n"
        bench.threads.acknowledge(*LIFE, 114)
        assert connection.recv(100) == b"114\n"


def test_the_end_of_the_stream_is_delivered_and_the_last_acknowledgement_sent(bench: JournalHarness) -> None:
    with bench.open() as connection:
        connection.sendall(b"one\n")
        connection.shutdown(socket.SHUT_WR)
        assert bench.reported.journal(5) == b"one\n" + END_OF_JOURNAL
        bench.threads.acknowledge(*LIFE, 5)
        assert connection.recv(100) == b"4\n"
        assert connection.recv(100) == b""


def test_a_paused_connection_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, source, reported = WaitPlan(), TimedSource(), JournalInbox()
    monkeypatch.setattr(journal_thread, "Event", partial(PlannedEvent, plan))
    thread = JournalThread(lone_surroundings(small_image(), reported), source, "pushed/0", 0, *LIFE)  # type: ignore[arg-type]
    thread.hold(True)
    received_while_held: list[int] = []

    def look() -> None:
        received_while_held.append(source.feeds[0].received)
        thread.hold(True)  # wakes it, and holds it still

    plan.then(look, look, lambda: thread.hold(False))
    thread.thread.run()  # in this thread
    assert plan.is_done
    assert received_while_held == [0, 0]
    assert source.feeds[0].received == 1
    assert reported.next() == ("ProducerDataRead", END_OF_JOURNAL)


def test_a_server_that_closes_during_a_pause_loses_no_line(bench: JournalHarness) -> None:
    with bench.open() as connection:
        bench.threads.hold(*LIFE, True)
        connection.sendall(b"one\n")
    bench.threads.hold(*LIFE, False)
    assert bench.reported.journal(5) == b"one\n" + END_OF_JOURNAL


def test_a_broken_connection_is_reported_and_a_new_one_can_be_opened(bench: JournalHarness) -> None:
    with bench.open() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close() resets the connection
    name, error = bench.reported.next()
    assert (name, "SocketFailed: " in error) == ("ProducerFailed", True)
    with bench.open(0) as connection:
        connection.sendall(b"one\n")
        assert bench.reported.journal(4) == b"one\n"


def test_a_server_that_does_not_listen_is_reported(bench: JournalHarness) -> None:
    bench.server.close()
    bench.threads.open(*LIFE, 0)
    name, error = bench.reported.next()
    assert (name, "Start the server that sends the lines" in error) == ("ProducerFailed", True)


def test_an_error_that_a_reconnect_cannot_fix_fails_the_job(bench: JournalHarness) -> None:
    with bench.open() as connection:
        connection.sendall(b"x" * 101)
        name, failed = bench.reported.next()
        assert (name, failed.recourse) == ("PartFailed", Recourse.NONE)
        assert "a line of more than 100 bytes" in failed.error


def test_the_connection_of_an_ended_incarnation_is_closed(bench: JournalHarness) -> None:
    with bench.open() as connection:
        bench.threads.close(*LIFE)
        assert connection.recv(100) == b""


def test_a_call_for_another_incarnation_is_ignored(bench: JournalHarness) -> None:
    other = (TaskId(0), Incarnation(8))
    with bench.open() as connection:
        connection.sendall(b"one\n")
        assert bench.reported.journal(4) == b"one\n"
        bench.threads.hold(*other, True)
        bench.threads.acknowledge(*other, 2)
        bench.threads.close(*other)
        for line in (b"two\n", b"six\n"):  # neither held, also after what it was about to receive, nor closed
            connection.sendall(line)
            assert bench.reported.journal(4) == line
        bench.threads.acknowledge(*LIFE, 12)
        assert connection.recv(100) == b"12\n"  # nor acknowledged before
