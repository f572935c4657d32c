"""A pipeline of connectors while everything is killed in turn: tasks, brokers, the database, a service, the driver."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos_chaos.connectors.process_trial import ProcessTrial
from tests.connectors.kafka.producing import committed
from tests.connectors.pipeline.rate_service import RateService
from tests.connectors.pipeline.rated_orders import CUSTOMERS, Places, Row, produce_orders, rated_orders
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.servers.server_process import ServerProcess
from tests.unit.codecs.registry_server import registry_server

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(300)]

STEP = 100
"""Orders between two kills."""

RESUMES_MAX = 10

ALARM = re.compile(r"output (\d+) to (\d+) of (\S+) had left before the rollback")


@pytest.fixture
def rates(tmp_path: Path) -> Iterator[RateService]:
    (tmp_path / "rates").mkdir()
    service = RateService(tmp_path / "rates")
    try:
        service.start()
        yield service
    finally:
        service.kill()


def restart(server: ServerProcess) -> None:
    server.kill()
    server.start()


def place_of(message: Any) -> tuple[str, int, int]:
    """Task, number and generation of a row in a topic."""
    found = dict(message.headers())
    return found["clonos-task"].decode(), int(found["clonos-number"]), int(found["clonos-generation"])


def check_rows(rows: list[Row], count: int, given: set[tuple[int, int]]) -> None:
    """Checks that each order is there once, numbered without a gap, with a rate that the service has given."""
    assert Counter(row["n"] for row in rows) == Counter(range(count))
    for customer in range(CUSTOMERS):
        seen = sorted(row["seen"] for row in rows if row["customer"] == f"c{customer}")
        assert seen == list(range(1, len(range(customer, count, CUSTOMERS)) + 1))
    assert {(row["n"], row["rate"]) for row in rows} <= given


def test_kills_of_everything_in_turn_lose_and_repeat_no_row_of_the_pipeline(
    tmp_path: Path, broker: KafkaServer, postgres: PostgresServer, rates: RateService
) -> None:
    with registry_server() as registry:
        places = Places(broker.servers, registry.url, rates.url, postgres.full_url)
        for topic in (places.orders, places.now, places.later):
            broker.create_topic(topic, 2)
        make, write = partial(rated_orders, places), partial(produce_orders, broker, registry)
        trial = ProcessTrial(make, tmp_path / "job", STEP, write=write)
        with trial:
            trial.wait_until_whole()
            for step in ("tested", "count", "now", "later", "table"):
                trial.load()
                trial.kill_task(0, step)
            for server in (broker, postgres, rates):
                trial.load()
                trial.outage(partial(restart, server))
            trial.load()
            for _ in range(RESUMES_MAX):  # until a row had left since the checkpoint
                trial.kill_driver()
                trial.load()
                if any(map(ALARM.match, trial.alarms)):
                    break
            trial.kill_all()
            trial.load()
            trial.wait_until_taken(trial.goal)
            trial.stop()
            assert trial.wait_for_end() == ""
    table = [dict(zip(("n", "customer", "seen", "rate"), row, strict=True)) for row in _stored(postgres)]
    later = [json.loads(message.value()) for message in committed(broker, places.later)]
    now = committed(broker, places.now)
    check_rows(table, trial.goal, rates.given())
    assert _sorted(later) == _sorted(table)
    last = {place_of(message)[:2]: json.loads(message.value()) for message in sorted(now, key=lambda m: place_of(m)[2])}
    assert _sorted(list(last.values())) == _sorted(table)
    times = Counter(place_of(message)[:2] for message in now)
    alarms = [found for text in trial.alarms if (found := ALARM.match(text))]
    announced = {(alarm[3], number) for alarm in alarms for number in range(int(alarm[1]), int(alarm[2]) + 1)}
    assert announced, "no death of the driver has repeated a row"
    assert {place for place, count in times.items() if count > 1} == announced


def _stored(server: PostgresServer) -> list[tuple[int, str, int, int]]:
    rows = server.psql("SELECT n, customer, seen, rate FROM rated")
    return [(int(n), customer, int(seen), int(rate)) for n, customer, seen, rate in rows]


def _sorted(rows: list[Row]) -> list[tuple[Any, ...]]:
    return sorted((row["n"], row["customer"], row["seen"], row["rate"]) for row in rows)
