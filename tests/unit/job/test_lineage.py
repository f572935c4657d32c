"""Events of OpenLineage of a job: what they say of its data sets and its run, and where they are sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow
import pytest

from clonos import (
    delta,
    files,
    iceberg,
    kafka,
    mqtt,
    nats,
    postgres,
    rabbitmq,
    redis,
    secrets,
    sockets,
    sqlite,
    values,
    web,
)
from clonos.api.graph import JobGraph
from clonos.core.model.errors import JobError
from clonos.job.lineage.lineage_events import LineageEvents
from clonos.job.lineage.lineage_writer import LineageWriter
from clonos.job.run_history.history_events import (
    CheckpointDone,
    DriverStarted,
    Event,
    RunEnded,
    TaskRecovered,
    WidthsChanged,
)
from clonos.operators.lineage import Dataset, datasets_of
from tests.speed import scaled
from tests.waiting import await_condition

wait_until = partial(await_condition, scaled(20.0))
NUMBERS = pyarrow.schema([("n", pyarrow.int64())])
CHANGES = partial(postgres.changes, "postgresql://db/shop", slot="shop")
SECOND_NS = 1_000_000_000
BEGAN_NS = 1_700_000_000 * SECOND_NS
STARTED = DriverStarted(
    at_ns=BEGAN_NS,
    job_id="sums-1",
    term=2,
    how="resumed",
    checkpoint=3,
    pid=1,
    host="here",
    version="1",
    tasks={"a": 2},
    shape=b"",
)


def _checkpoint(after_s: int, number: int) -> CheckpointDone:
    at_ns = BEGAN_NS + after_s * SECOND_NS
    return CheckpointDone(at_ns=at_ns, job_id="sums-1", term=2, number=number, duration_ms=1.0)


def _end(how: str, error: str = "") -> RunEnded:
    return RunEnded(at_ns=BEGAN_NS + 99 * SECOND_NS, job_id="sums-1", term=2, how=how, checkpoint=9, error=error)


def _graph() -> JobGraph:
    graph = JobGraph("sums")
    schema = pyarrow.schema([("name", pyarrow.string()), ("price", pyarrow.int64())])
    graph.source(files.csv("/data/in.csv", schema=schema), name="read").sink(files.jsonl("s3://shop/out"))
    return graph


def _events(*events: Event, graph: JobGraph | None = None, parent: str = "") -> list[dict[str, Any]]:
    lineage = LineageEvents(graph or _graph(), "shop", parent, "0.1.0")
    return [found for event in events for found in lineage.add(event)]


@pytest.mark.parametrize(
    ("connector", "datasets"),
    [
        (kafka.source(["a", "b"], servers="b1:9092,b2:9092"), [("kafka://b1:9092", "a"), ("kafka://b1:9092", "b")]),
        (kafka.sink("sums", servers="b1:9092"), [("kafka://b1:9092", "sums")]),
        (postgres.table("postgresql://me:pw@db:5433/shop?x=1", "sales.a"), [("postgres://db:5433", "shop.sales.a")]),
        (postgres.table("host=db dbname=shop", "sums"), [("postgres://db:5432", "shop.public.sums")]),
        (postgres.table("postgresql://a:1,b:2/shop", "sums"), [("postgres://a:1", "shop.public.sums")]),
        (files.jsonl("/data/out"), [("file", "/data/out")]),
        (files.lines("sftp://me@host/in/a.txt"), [("sftp://host", "in/a.txt")]),
        (files.lines("s3://shop/in/*.txt"), [("s3://shop", "in/*.txt")]),
        (files.lines("/a.txt").then(files.tail("/var/log/b.log")), [("file", "/a.txt"), ("file", "/var/log/b.log")]),
        (delta.table("s3://shop/table?region=x"), [("s3://shop", "table")]),
        (sqlite("/data/shop.db", "sums"), [("file", "/data/shop.db#sums")]),
        (values([1]), []),
    ],
)  # fmt: skip
def test_data_sets_have_the_names_of_openlineage_without_users_and_options(
    connector: object, datasets: list[tuple[str, str]]
) -> None:
    assert datasets_of(connector) == [Dataset(*each) for each in datasets]


@pytest.mark.parametrize(
    ("connector", "datasets"),
    [
        (CHANGES(table=["a", "x.b"]), "postgres://db:5432 shop.public.a, postgres://db:5432 shop.x.b"),
        (CHANGES(table="a", snapshot=True), "postgres://db:5432 shop.public.a"),
        (CHANGES(publication="all"), ""),
        (postgres.table(secrets.env("DSN"), "sums"), "postgres://<secret from $DSN> sums"),
        (nats.source("orders", url="nats://me:pw@n1,nats://n2"), "nats://n1:4222 orders"),
        (nats.source("orders", url="nats://n1", subjects=["a.*", "b"]), "nats://n1:4222 a.*, nats://n1:4222 b"),
        (nats.sink("a.b", url="tls://n1:99"), "nats://n1:99 a.b"),
        (nats.sink(str, url="tls://n1:99"), ""),
        (nats.sink("a", url="nats://[::1]"), "nats://[::1]:4222 a"),
        (nats.sink("a", url="nats://me:pw@n1:http"), "nats://n1:http a"),
        (mqtt.source(["$share/all/a/+", "b"], session="s", url="mqtt://m"), "mqtt://m:1883 a/+, mqtt://m:1883 b"),
        (mqtt.sink("a/b", url="mqtts://m"), "mqtt://m:8883 a/b"),
        (rabbitmq.queue("in", url="amqp://me:pw@r1/%2F"), "amqp://r1:5672 in"),
        (rabbitmq.queue("in", url="amqps://r1/shop?heartbeat=5"), "amqp://r1:5671 shop/in"),
        (rabbitmq.exchange("out", url="amqp://r1"), "amqp://r1:5672 out"),
        (rabbitmq.exchange("", routing_key="in", url="amqp://r1"), "amqp://r1:5672 in"),
        (rabbitmq.exchange("", routing_key=str, url="amqp://r1"), ""),
        (redis.source(["a", "b"], url="redis://:pw@r1"), "redis://r1:6379 0/a, redis://r1:6379 0/b"),
        (redis.sink("a", url="rediss://r1:7000/3"), "redis://r1:7000 3/a"),
        (redis.sink("a", url=secrets.env("URL")), "redis://<secret from $URL> 0/a"),
        (iceberg.read("shop.a", catalog="main"), "iceberg://main shop.a"),
        (iceberg.changes("shop.a", catalog={"uri": "http://me:pw@cat:8181/v1/?x=y"}), "http://cat:8181/v1 shop.a"),
        (iceberg.table("shop.a", catalog={"uri": "sqlite:////c.db"}, schema=NUMBERS), "sqlite:///c.db shop.a"),
        (iceberg.read("shop.a", catalog={"uri": secrets.env("URI")}), "iceberg://<secret from $URI> shop.a"),
        (web.poll("HTTPS://shop.com/orders?key=1", every="1s"), "https://shop.com orders"),
        (web.post("https://shop.com/in?key=1"), "https://shop.com in"),
        (web.websocket("wss://shop.com/feed?key=1"), "wss://shop.com feed"),
        (sockets.lines("host", 99), "tcp://host:99 /"),
    ],
)
def test_parts_of_brokers_catalogs_and_servers_have_one_name_however_they_are_reached(
    connector: object, datasets: str
) -> None:
    assert ", ".join(f"{each.namespace} {each.name}" for each in datasets_of(connector)) == datasets


def test_a_run_begins_with_its_data_sets_and_columns_and_ends_under_the_same_id() -> None:
    start, end = _events(STARTED, _end("finished"))
    (read,), (written,) = start["inputs"], start["outputs"]
    assert (read["namespace"], read["name"]) == ("file", "/data/in.csv")
    assert read["facets"]["schema"]["fields"] == [
        {"name": "name", "type": "string"},
        {"name": "price", "type": "int64"},
    ]
    assert (written["namespace"], written["name"]) == ("s3://shop", "out")
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["eventTime"] == "2023-11-14T22:13:20.000Z"
    assert UUID(start["run"]["runId"]) == UUID(end["run"]["runId"])
    assert (start["job"]["namespace"], start["job"]["name"]) == ("shop", "sums")
    assert start["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    facets = [*start["run"]["facets"].values(), *start["job"]["facets"].values(), *read["facets"].values()]
    assert all(each["_producer"] and each["_schemaURL"] for each in facets)


def test_each_driver_is_a_run_of_its_own() -> None:
    first, second = (_events(STARTED), _events(STARTED.__class__(**(_fields(STARTED) | {"term": 3}))))
    assert first[0]["run"]["runId"] != second[0]["run"]["runId"]


def _fields(event: DriverStarted) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


@pytest.mark.parametrize(
    ("how", "kind"),
    [("drained", "COMPLETE"), ("failed", "FAIL"), ("aborted", "ABORT"), ("superseded", "ABORT"), ("closed", "ABORT")],
)
def test_the_last_event_reports_how_the_run_has_ended(how: str, kind: str) -> None:
    (end,) = _events(_end(how, "KeyError: 'eur'" if how == "failed" else ""))
    assert end["eventType"] == kind
    message = end["run"]["facets"].get("errorMessage", {}).get("message")
    assert message == ("KeyError: 'eur'" if how == "failed" else None)


def test_a_run_is_reported_once_a_minute_and_when_its_widths_change() -> None:
    recovered = TaskRecovered(
        at_ns=BEGAN_NS,
        job_id="sums-1",
        term=2,
        task="a/0",
        incarnation=4,
        cause="killed",
        duration_ms=1.0,
        phases_ms={},
    )
    widths = WidthsChanged(at_ns=BEGAN_NS + 61 * SECOND_NS, job_id="sums-1", term=2, phase="done", tasks={"a": 3})
    checkpoints = [_checkpoint(after_s, 4 + after_s) for after_s in (1, 59, 60, 119, 121)]
    _, *running = _events(STARTED, recovered, *checkpoints[:3], widths, *checkpoints[3:])
    progress = [each["run"]["facets"]["clonos_progress"] for each in running]
    assert {each["eventType"] for each in running} == {"RUNNING"}
    assert [(each["checkpoint"], each["recoveries"]) for each in progress] == [(64, 1), (64, 1), (125, 1)]


def test_a_job_without_an_end_is_streaming() -> None:
    graph = JobGraph("followed")
    graph.source(files.tail("/var/log/app.log"), name="read").sink(files.jsonl("/out"))
    assert _events(STARTED, graph=graph)[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"


@pytest.mark.parametrize(
    ("parent", "named"),
    [("airflow/dag/task/0191f6b2-0b7c-7d6e-8b8e-1f2e3d4c5b6a", "dag/task"), ("airflow/dag/now", None), ("", None)],
)
def test_the_run_that_has_started_a_job_is_its_parent(parent: str, named: str | None) -> None:
    found = _events(STARTED, parent=parent)[0]["run"]["facets"].get("parent")
    assert (found and found["job"]) == (named and {"namespace": "airflow", "name": named})


# ------------------------------------------------------------------ the writer


class _Server(ThreadingHTTPServer):
    """A server that answers with ``status``, and notes what it has taken."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 201
        self.taken: list[tuple[str, str | None, str]] = []
        self.asked = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status < 300:
            self.server.taken.append((self.path, self.headers["Authorization"], event["eventType"]))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.server.asked.set()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[_Server]:
    found = _Server()
    thread = threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        thread.join()
        found.server_close()


def test_a_server_gets_the_events_with_the_key_of_the_environment(
    server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret")
    writer = LineageWriter("environment", _graph())
    writer.note(STARTED)
    wait_until(lambda: len(server.taken) == 1)  # before the end
    writer.note(_end("finished"))
    writer.close()
    assert server.taken == [("/api/v1/lineage", "Bearer secret", kind) for kind in ("START", "COMPLETE")]


def test_an_event_that_a_server_cannot_take_now_is_sent_later_in_order(
    server: _Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = 503
    writer = LineageWriter(f"http://127.0.0.1:{server.server_port}", _graph())
    writer.note(STARTED)
    assert server.asked.wait(scaled(20.0))
    server.status = 201
    writer.note(_end("finished"))
    writer.close()
    assert [kind for _, _, kind in server.taken] == ["START", "COMPLETE"]
    assert [each.message.partition(" does not")[2] for each in caplog.records] == [
        " take events of lineage: status 503 Service Unavailable; the job goes on"
    ]


def test_an_event_that_a_server_refuses_does_not_hold_up_the_next(server: _Server) -> None:
    server.status = 400
    writer = LineageWriter(f"http://127.0.0.1:{server.server_port}", _graph())
    writer.note(STARTED)
    assert server.asked.wait(scaled(20.0))
    wait_until(lambda: not writer.is_waiting)
    server.status = 201
    writer.note(_end("finished"))
    writer.close()
    assert [kind for _, _, kind in server.taken] == ["COMPLETE"]


def test_a_file_gets_an_event_a_line_and_a_missing_folder_is_named(tmp_path: Path) -> None:
    writer = LineageWriter(str(tmp_path / "events.jsonl"), _graph())
    writer.note(STARTED)
    writer.note(_end("drained"))
    writer.close()
    lines = (tmp_path / "events.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]
    with pytest.raises(JobError, match="missing"):
        LineageWriter(str(tmp_path / "no" / "events.jsonl"), _graph())
    with pytest.raises(JobError, match=r'write "http://127\.0\.0\.1:4399"'):
        LineageWriter("127.0.0.1:4399", _graph())
    with pytest.raises(JobError, match="OPENLINEAGE_URL"):
        LineageWriter("environment", _graph())
