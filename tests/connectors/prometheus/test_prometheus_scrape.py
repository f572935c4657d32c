"""A real Prometheus reads the metrics of a job whose task is killed; alert rules and dashboards work on them."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos import Timestamps, files, metrics, service
from clonos.job import Handle, Job
from clonos.server.monitoring.dashboards import ALERT_RULES, DASHBOARDS, write_monitoring
from tests.connectors.servers.prometheus import PrometheusServer, promtool
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = pytest.mark.connectors

LIMIT_S = scaled(60.0)
COUNT = 3_000
EPOCH_S = 1_700_000_000


SEEN = metrics.Counter("numbers_seen", "Numbers that were doubled.", labelnames=["parity"])
SIZES = metrics.Histogram("number_size", "How large they were.", buckets=(COUNT // 4 - 1, COUNT // 2 - 1))
LAST = metrics.Gauge("last_number", "The last of them.")


@service
def _doubled(number: int) -> int:
    """A call of an external system."""
    return 2 * number


def doubled(number: int) -> int:
    SEEN.labels("odd" if number % 2 else "even").inc()
    SIZES.observe(number)
    LAST.set(number)
    return _doubled(number)


@contextmanager
def _counting_job(folder: Path, port: int) -> Iterator[tuple[Handle, Gate]]:
    """Each number is a call and a row, and has a timestamp."""
    gate = Gate(folder / "gate")
    job = Job("sums", slots="process", store=folder / "store", checkpoint_every="300ms", metrics_port=port)
    times = Timestamps(lambda number: EPOCH_S + number, out_of_order="5s")
    numbers = job.source(GatedNumbers(gate), name="read", timestamps=times)
    counts = numbers.map(doubled, name="double").key_by(lambda number: number % 7).count(name="count")
    counts.map(lambda counted: {"key": counted[0]}, name="row").sink(files.jsonl(folder / "out"))
    with job.start() as handle:
        yield handle, gate


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline_s, pause = time.monotonic() + LIMIT_S, threading.Event()
    while not holds():
        assert time.monotonic() < deadline_s, what
        pause.wait(0.1)


def _kill(handle: Handle, name: str) -> None:
    task = next(task for task in handle.status().tasks if task.name == name)
    assert task.pid > 1, task
    os.kill(task.pid, signal.SIGKILL)


def _filled(query: str) -> str:
    return query.replace("$job", ".*").replace("$__rate_interval", "1m")


def test_prometheus_reads_a_job_with_a_kill_and_each_query_of_the_dashboards_has_data(tmp_path: Path) -> None:
    port = _free_port()
    server = PrometheusServer(tmp_path, [f"127.0.0.1:{port}"], [ALERT_RULES])
    processed = 'sum(clonos_records_processed_total{job="sums", operator="count-row"})'

    def value(query: str) -> float:
        return sum(found for _, found in server.query(query))

    try:
        with _counting_job(tmp_path, port) as (handle, gate):
            server.start()
            gate.open_to(COUNT // 2)
            _until(lambda: value(processed) == COUNT // 2, "half of the records were not counted")
            _until(lambda: all(task.standbys for task in handle.status().tasks), "a task has no standby")
            _kill(handle, "read-double/0")
            _until(lambda: value("clonos_recovery_duration_seconds_count") == 1, "no recovery was counted")
            gate.open_to(COUNT)
            _until(lambda: value(processed) == COUNT, "a record was counted twice or not at all")
            _until(lambda: value("sum(numbers_seen_total)") == COUNT, "a metric of the job counted twice or not at all")
            empty = [
                (name, panel.title, panel.query)
                for name, dashboard in DASHBOARDS.items()
                for panel in dashboard.panels
                if all(math.isnan(found) for _, found in server.query(_filled(panel.query)))
            ]
            assert empty == []
            end_to_end, processing = (
                value(f'clonos_{kind}_latency_seconds_sum{{job="sums", operator="count-row"}}')
                / value(f'clonos_{kind}_latency_seconds_count{{job="sums", operator="count-row"}}')
                for kind in ("end_to_end", "processing")
            )
            assert 0 < processing <= end_to_end < LIMIT_S
            assert all(each.size_bytes for each in handle.checkpoints() if each.completed_ns)
            task = 'job="sums", operator="read-double", task="read-double/0"'
            assert value(f'numbers_seen_total{{{task}, parity="odd"}}') == COUNT // 2
            assert value(f'number_size_bucket{{{task}, le="749.0"}}') == COUNT // 4
            assert value(f"number_size_sum{{{task}}}") == COUNT * (COUNT - 1) // 2
            assert value(f"last_number{{{task}}}") == COUNT - 1
            assert value('sum(clonos_recoveries_total{task="read-double/0"})') == 1
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=scaled(20)) as answer:
                checked = promtool("check", "metrics", text=answer.read())
            assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
            rules = server.get("rules")["groups"][0]["rules"]
            assert {rule["health"] for rule in rules} == {"ok"}
            firing = [rule["name"] for rule in rules if rule["state"] != "inactive"]
            assert not {"ClonosTaskNotLive", "ClonosCheckpointsStopped", "ClonosRolledBack"} & {*firing}
            gate.end(COUNT)
            assert handle.wait(LIMIT_S).has_finished
            found = {(each.name, *each.labels.values()): each.value for each in handle.metrics()}
            assert found["numbers_seen", "even"] == found["numbers_seen", "odd"] == COUNT // 2
    finally:
        server.kill()


def test_promtool_accepts_the_alert_rules_and_every_dashboard_is_a_file_with_its_panels(tmp_path: Path) -> None:
    rules, *boards = write_monitoring(tmp_path)
    checked = promtool("check", "rules", rules)
    assert checked.returncode == 0, checked.stderr
    assert [board.name for board in boards] == [f"clonos-{name}.json" for name in DASHBOARDS]
    for board, dashboard in zip(boards, DASHBOARDS.values(), strict=True):
        document = json.loads(board.read_text("utf-8"))
        assert [panel["targets"][0]["expr"] for panel in document["panels"]] == [
            each.query for each in dashboard.panels
        ]
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in document["panels"]]
        assert len(set(places)) == len(places) == len({panel["id"] for panel in document["panels"]})
