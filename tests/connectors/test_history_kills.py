"""A history and then a live source, while tasks, drivers and servers die in either half and at the cut; late cuts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clonos import LateCut, files, kafka, nats, redis, values
from clonos import postgres as pg
from clonos.api.graph import JobGraph
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.history import HistorySource
from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.options import Options
from tests.connectors.kafka.producing import produce, trim
from tests.connectors.live_halves import HALVES, KEYS, LiveHalf
from tests.connectors.nats.streams import add_stream, publish
from tests.connectors.redis.streams import add_stream as add_entries
from tests.connectors.redis.streams import publish as add_to_entries
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.nats import NatsServer
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.servers.redis import RedisProcess
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import RunningJob, running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

HISTORY = 400
LIVE = 400
OPTIONS = Options(checkpoint_every_ms=300, heartbeat_ms=50)


class GatedHistory(GatedNumbers, HistorySource):
    """Numbers that end."""


def number_of(record: Any) -> int:
    """The number of a record of either half."""
    return record if isinstance(record, int) else int(record.row["n"])


def book(key: int, last: int | None, number: int) -> tuple[int, dict[str, Any]]:
    """Emits each number with its predecessor under its key."""
    return number, {"n": number, "last": last}


class Continued:
    """numbers, then a live half -> by key, in order -> files."""

    def __init__(self, folder: Path, live: LiveHalf) -> None:
        self.folder, self.live = folder, live
        self.gate = Gate(folder / "gate")

    def graph(self) -> JobGraph:
        """A new description of the same job."""
        graph = JobGraph("continued")
        numbers = graph.source(GatedHistory(self.gate).then(self.live.source), name="numbers").map(number_of)
        booked = numbers.key_by(lambda number: number % KEYS).stateful_map(book, name="book", parallelism=2)
        booked.sink(files.jsonl(self.folder / "out"), name="out")
        return graph

    def publish(self, first: int, end: int) -> None:
        """Numbers to their keys."""
        for key in range(KEYS):
            self.live.publish(key, range(first + key, end, KEYS))

    def rows(self) -> Iterator[Any]:
        """Committed rows."""
        return iter(files.read_committed(self.folder / "out")) if (self.folder / "out").exists() else iter(())

    def wait_for(self, job: RunningJob, count: int) -> None:
        """Until that many rows are committed."""
        job.wait_for(lambda _: sum(1 for _ in self.rows()) >= count)


@pytest.fixture(params=HALVES, ids=lambda half: half.fixture)
def half(request: pytest.FixtureRequest) -> Callable[[str], LiveHalf]:
    """Makes the live half of each server."""
    server = request.getfixturevalue(request.param.fixture)
    return lambda name: request.param(server, name)


def kill(job: RunningJob) -> None:
    """SIGKILL to the process of the source, once it lives."""
    job.wait_for(lambda it: bool(it.phases) and set(it.phases.values()) == {"live"})
    os.kill(job.pid_of(0), signal.SIGKILL)


def test_kills_in_both_halves_and_at_the_cut_and_new_drivers_leave_each_row_once_and_in_order(
    tmp_path: Path, half: Callable[[str], LiveHalf]
) -> None:
    continued = Continued(tmp_path, half("continued"))
    continued.publish(HISTORY, HISTORY + LIVE // 2)  # waits for the end of the history
    with running(continued.graph(), tmp_path, OPTIONS) as job:
        continued.gate.open_to(HISTORY // 4)
        continued.wait_for(job, HISTORY // 4)
        kill(job)
        continued.gate.open_to(HISTORY // 2)
        continued.wait_for(job, HISTORY // 2)
    with running(continued.graph(), tmp_path, OPTIONS, resume=True) as job:
        continued.gate.open_to(HISTORY)
        continued.wait_for(job, HISTORY)
        continued.gate.end(HISTORY)
        kill(job)  # at the cut
        continued.wait_for(job, HISTORY + LIVE // 2)
        kill(job)
        continued.publish(HISTORY + LIVE // 2, HISTORY + 3 * LIVE // 4)
        continued.wait_for(job, HISTORY + LIVE // 2 + 1)
    with running(continued.graph(), tmp_path, OPTIONS, resume=True) as job:
        continued.live.server.kill()
        continued.live.server.start()
        continued.publish(HISTORY + 3 * LIVE // 4, HISTORY + LIVE)
        continued.wait_for(job, HISTORY + LIVE)
    rows = sorted((row["n"], row["last"]) for row in continued.rows())
    assert rows == [(n, n - KEYS if n >= KEYS else None) for n in range(HISTORY + LIVE)]


def test_records_that_the_server_removes_while_the_history_is_read_end_the_job_with_a_late_cut(
    tmp_path: Path, half: Callable[[str], LiveHalf]
) -> None:
    continued = Continued(tmp_path, half("removed"))
    continued.publish(0, 10)
    with running(continued.graph(), tmp_path, OPTIONS) as job:
        continued.gate.open_to(10)
        continued.wait_for(job, 10)
        continued.live.lose()
        continued.gate.end(10)
        failed = job.end()
    assert isinstance(failed, JobFailed)
    assert "cannot begin where the history ends" in failed.error
    assert failed.error.endswith("Take a history that ends later, and start afresh with --overwrite.")


def refused(live: Any, message: str) -> None:
    """Checks that a live source cannot continue a history, by this message."""
    with pytest.raises(LateCut, match=message):
        values([1]).then(live).splits(1)


def taken(live: Any) -> None:
    """Checks that it can."""
    assert len(values([1]).then(live).splits(1)) == 2


def test_a_cut_whose_records_retention_may_have_removed_is_refused_with_kafka(broker: KafkaServer) -> None:
    topic = broker.create_topic("trimmed")

    def begun(start: Any) -> Any:
        return kafka.source(topic, servers=broker.servers, decode=int, start=start)

    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=2)
    for minute in range(10):
        stamp = round((at + timedelta(minutes=minute)).timestamp() * 1_000)
        produce(broker, topic, [minute], timestamp=stamp)
    taken(begun("earliest"))
    trim(broker, topic, {0: 5})
    for late in ("earliest", {0: 4}, at, at + timedelta(minutes=5)):
        refused(begun(late), "partition 0 of trimmed begins at offset 5, and records after that place may be gone")
    for right in ({0: 5}, {0: 10}, at + timedelta(minutes=6), at + timedelta(minutes=60)):
        taken(begun(right))
    trim(broker, topic, {0: 10})
    for late in ("earliest", {0: 5}, at + timedelta(minutes=6)):
        refused(begun(late), "partition 0 of trimmed begins at offset 10")
    refused(begun(datetime.now(UTC) + timedelta(hours=1)), "in the future, so that records in front of it may still")


def test_a_cut_whose_messages_retention_may_have_removed_is_refused_with_nats(nats_server: NatsServer) -> None:
    add_stream(nats_server, "TRIMMED", max_msgs=5)

    def begun(start: Any) -> Any:
        return nats.source("TRIMMED", url=nats_server.full_url, decode=int, start=start)

    before = datetime.now(UTC) - timedelta(minutes=1)
    publish(nats_server, "trimmed", range(5))
    for right in ("earliest", 1, before):
        taken(begun(right))
    publish(nats_server, "trimmed", range(5, 10))
    for late in ("earliest", 5, before):
        refused(begun(late), "the stream TRIMMED begins at sequence 6, and messages after that place may be gone")
    for right in (6, 11):
        taken(begun(right))
    with pytest.raises(InvalidConnector, match="start is 12, but the stream TRIMMED has the sequences from 6 up to 10"):
        values([1]).then(begun(12)).splits(1)
    nats_server.ask(lambda jetstream: jetstream.purge_stream("TRIMMED"))
    for late in ("earliest", 10, before, datetime.now(UTC)):
        refused(begun(late), "the stream TRIMMED begins at sequence 11")
    taken(begun(11))
    refused(begun(datetime.now(UTC) + timedelta(hours=1)), "in the future, so that messages in front of it may still")


def test_a_cut_whose_entries_were_removed_is_refused_with_redis(redis_server: RedisProcess) -> None:
    key = add_entries(redis_server, "trimmed")
    live = redis.source(key, url=redis_server.full_url, decode=int)
    taken(live)
    add_to_entries(redis_server, key, range(10))
    taken(live)
    redis_server.ask("XTRIM", key, "MAXLEN", 5)
    refused(live, "the first 5 entries of the stream trimmed are gone. Take a history that ends later")
    redis_server.ask("XTRIM", key, "MAXLEN", 0)
    refused(live, "the first 10 entries of the stream trimmed are gone")


def test_a_slot_that_is_made_after_the_history_or_has_lost_changes_is_refused_with_postgresql(
    replicated: PostgresServer,
) -> None:
    replicated.run("CREATE TABLE counted (n int PRIMARY KEY)")
    live = pg.changes(replicated.full_url, "counted", slot="counted")
    refused(live, "there is no replication slot counted yet, .* Create it before you take the history")
    assert replicated.run("SELECT * FROM pg_replication_slots") == []  # what was refused has not created it
    live.splits(1)
    taken(live)
    replicated.run("ALTER SYSTEM SET max_slot_wal_keep_size = 1")
    replicated.run("SELECT pg_reload_conf()")
    try:
        while replicated.run("SELECT wal_status FROM pg_replication_slots") != [("lost",)]:
            replicated.run("INSERT INTO counted SELECT coalesce(max(n), 0) + 1 FROM counted")
            replicated.run("SELECT pg_switch_wal()")
            replicated.run("CHECKPOINT")
    finally:
        replicated.run("ALTER SYSTEM RESET max_slot_wal_keep_size")
        replicated.run("SELECT pg_reload_conf()")
    refused(live, "the replication slot counted was invalidated, because it kept more than max_slot_wal_keep_size")
