"""Reports of all connectors, written as a table into build/connectors.md: `make connectors`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from clonos.testing import Guarantee, Guarantees, NetworkLink
from tests.connectors.servers.kafka import KafkaServer
from tests.connectors.servers.nats import NatsServer
from tests.connectors.servers.postgres import PostgresServer
from tests.connectors.servers.rabbitmq import RabbitServer
from tests.connectors.servers.server_process import ServerProcess
from tests.harnesses.s3_server import S3Server
from tests.tidy.source import ROOT

Outages = dict[str, Callable[[], object]]
Expect = Callable[[str, Guarantees], None]

TABLE = ROOT / "build" / "connectors.md"
EXACTLY, AT_LEAST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
REPEATING: Mapping[str, Guarantee] = {"rollbacks": AT_LEAST, "resumes": AT_LEAST}
"""Trials after which a sink repeats rows that it cannot withdraw."""

FORGETTING: Mapping[str, Guarantee] = {"rollbacks": Guarantee.NONE, "resumes": AT_LEAST}
"""The same where nobody remembers the numbers of a task. If it dies with all its keepers, a key or an id may come again
for another row, and who compares keys drops that one."""


@pytest.fixture(scope="session")
def table() -> Iterator[dict[str, Guarantees]]:
    """Reports by the name of the connector."""
    reports: dict[str, Guarantees] = {}
    yield reports
    trials = list(dict.fromkeys(trial for report in reports.values() for trial in report))
    lines = [["connector", *trials], ["---"] * (len(trials) + 1)]
    for name, report in reports.items():
        lines.append([name, *(_cell(report, trial) for trial in trials)])
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), "utf-8")


def _cell(report: Guarantees, trial: str) -> str:
    if trial not in report:
        return ""
    found = report[trial]
    return f"{found.rows}: {found.lost} / {found.twice + found.changed}"


@pytest.fixture
def expect(table: dict[str, Guarantees]) -> Expect:
    """Notes a report, and checks that each trial is exactly-once, or as ``weaker`` has it."""

    def check(name: str, report: Guarantees, weaker: Mapping[str, Guarantee] | None = None) -> None:
        print(name, report)
        table[name] = report
        for trial, evidence in report.items():
            least = (weaker or {}).get(trial, EXACTLY)
            assert not evidence.failure, report
            assert least is Guarantee.NONE or evidence.guarantee in (EXACTLY, least), report

    return check


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
def s3_link(s3: S3Server) -> Iterator[NetworkLink]:
    with NetworkLink(s3.address.removeprefix("http://")) as link:
        yield link


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Folder of everything that a test's connectors write."""
    (tmp_path / "places").mkdir()
    return tmp_path / "places"
