"""Reports of all connectors, written as a table into build/connectors.md: `make connectors`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from clonos.testing import Evidence, Guarantee, Guarantees, NetworkLink
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.mosquitto import MosquittoServer
from tests.connectors.servers.nats import NatsServer
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.connectors.servers.redis import RedisProcess
from tests.connectors.servers.server_process import ServerProcess
from tests.harnesses.s3_server import S3Server
from tests.tidy.source import ROOT

Outages = dict[str, Callable[[], object]]
Expect = Callable[[str, Guarantees], None]
Rows = dict[str, dict[str, str]]

TABLE = ROOT / "build" / "connectors.md"
CELLS = TABLE.with_suffix(".json")
EXACTLY, AT_LEAST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
REPEATING: Mapping[str, Guarantee] = {"rollbacks": AT_LEAST, "resumes": AT_LEAST}
"""Trials after which a sink repeats rows that it cannot withdraw."""


@pytest.fixture(scope="session")
def table() -> Iterator[dict[str, Guarantees]]:
    """Reports by the name of the connector. Those of connectors that this run leaves out stay as they were."""
    reports: dict[str, Guarantees] = {}
    yield reports
    cells: Rows = json.loads(CELLS.read_text("utf-8")) if CELLS.exists() else {}
    cells |= {name: {trial: _cell(found) for trial, found in report.items()} for name, report in reports.items()}
    trials = [*dict.fromkeys(trial for row in cells.values() for trial in row)]
    lines = [["connector", *trials], ["---"] * (len(trials) + 1)]
    lines += [[name, *(row.get(trial, "") for trial in trials)] for name, row in sorted(cells.items())]
    TABLE.parent.mkdir(exist_ok=True)
    CELLS.write_text(json.dumps(cells, indent=1), "utf-8")
    TABLE.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), "utf-8")


def _cell(found: Evidence) -> str:
    """Rows, how many of them are lost, how many are too many, and how many of these the alarms have numbered."""
    repeated = found.twice + found.changed
    announced = f", {found.announced} numbered" if repeated and found.announced else ""
    return f"{found.rows:,}: {found.lost} / {repeated}{announced}"


@pytest.fixture
def expect(table: dict[str, Guarantees]) -> Expect:
    """Notes a report, and checks that each trial is exactly-once, or as ``weaker`` has it."""

    def check(name: str, report: Guarantees, weaker: Mapping[str, Guarantee] | None = None) -> None:
        print(name, report)
        table[name] = report
        for trial, evidence in report.items():
            least = (weaker or {}).get(trial, EXACTLY)
            assert not evidence.failure, report
            assert evidence.guarantee in (EXACTLY, least), report

    return check


def numbered(report: Guarantees) -> None:
    """Checks that alarms number the rows that came again."""
    for trial in REPEATING:
        assert report[trial].twice + report[trial].changed <= report[trial].announced, report


def server_outages(server: ServerProcess) -> Outages:
    """Outages of a server's process."""

    def killed() -> None:
        server.kill()
        server.start()

    return {"server killed": killed}


@pytest.fixture
def kafka_link(broker: KafkaServer) -> Iterator[NetworkLink]:
    with NetworkLink(broker.linked, broker.link) as link:
        yield link


@pytest.fixture
def postgres_link(postgres: PostgresServer) -> Iterator[NetworkLink]:
    with NetworkLink(f"127.0.0.1:{postgres.port}") as link:
        yield link


@pytest.fixture
def rabbit_link(rabbit: RabbitServer) -> Iterator[NetworkLink]:
    with NetworkLink(f"127.0.0.1:{rabbit.port}") as link:
        yield link


@pytest.fixture
def nats_link(nats_server: NatsServer) -> Iterator[NetworkLink]:
    with NetworkLink(nats_server.place) as link:
        yield link


@pytest.fixture
def redis_link(redis_server: RedisProcess) -> Iterator[NetworkLink]:
    with NetworkLink(redis_server.place) as link:
        yield link


@pytest.fixture
def mqtt_link(mosquitto: MosquittoServer) -> Iterator[NetworkLink]:
    with NetworkLink(mosquitto.place) as link:
        yield link


@pytest.fixture
def s3_link(s3: S3Server) -> Iterator[NetworkLink]:
    with NetworkLink(s3.address.removeprefix("http://")) as link:
        yield link


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Folder of everything that a test's connectors write."""
    (tmp_path / "places").mkdir()
    return tmp_path / "places"
