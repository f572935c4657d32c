"""The metrics of a job for Prometheus, from statuses made by hand."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from clonos.core.model.progress import TaskPhase
from clonos.job.prometheus.collector import JobCollector
from clonos.job.prometheus.endpoint import MetricsEndpoint, MetricsPortTaken
from clonos.job.prometheus.exposition import exposition, merged
from clonos.job.prometheus.job_counters import DurationHistogram
from clonos.status import CheckpointState, Phase, RecoveryState, Status, TaskState
from tests.harnesses.late_families import late_families

JOB = {"job": "sums", "job_id": "sums-1"}
TASK = {**JOB, "task": "count/0", "operator": "count"}
SECOND_NS = 1_000_000_000


def _task(incarnation: int, **counters: int) -> TaskState:
    return TaskState("count/0", incarnation, 1, 4711, "process-1", TaskPhase.LIVE, counters, 1, 1)


def _status(
    *tasks: TaskState, recoveries: tuple[RecoveryState, ...] = (), generation: int = 1, job_id: str = "sums-1"
) -> Status:
    return Status("sums", Phase.RUNNING, job_id, generation=generation, tasks=tasks, recoveries=recoveries)


class _Job:
    """A job whose status and checkpoints the test sets."""

    def __init__(self, status: Status) -> None:
        self.status, self.checkpoints = status, tuple[CheckpointState, ...]()
        self.collector = JobCollector(lambda: self.status, lambda: self.checkpoints)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def test_a_record_that_a_successor_replays_is_processed_once() -> None:
    job = _Job(_status(_task(1, records_in=100)))
    assert job.value("clonos_records_processed_total", **TASK) == 100
    job.status = _status(_task(2, records_in=60))  # from the checkpoint, in its replay
    assert job.value("clonos_records_processed_total", **TASK) == 100
    job.status = _status(_task(2, records_in=130))
    assert job.value("clonos_records_processed_total", **TASK) == 130


def test_records_of_tasks_that_run_no_more_count_once_and_those_of_a_task_that_returns_go_on() -> None:
    def tasks(incarnation: int, *records: int) -> Status:
        each = [replace(_task(incarnation, records_in=n), name=f"count/{i}") for i, n in enumerate(records)]
        return _status(*each, generation=incarnation)

    def counted(*records: int) -> list[float | None]:
        job.status = tasks(len(statuses), *records)
        statuses.append(records)
        found = [job.value("clonos_records_processed_total", **TASK | {"task": f"count/{i}"}) for i in range(2)]
        return found if len(records) == 2 else found[:1]

    statuses: list[tuple[int, ...]] = [()]
    job = _Job(_status())
    assert counted(100, 70) == [100, 70]
    assert counted(170) == [100]  # with those of count/1
    assert counted(180) == [110]
    assert counted(180, 0) == [110, 70]
    assert counted(190, 5) == [120, 75]


def test_the_bytes_of_a_log_that_begins_again_at_another_width_are_added() -> None:
    job = _Job(_status(_task(1, determinant_bytes=100)))
    assert job.value("clonos_causal_log_written_bytes_total", **TASK) == 100
    job.status = _status(_task(2, determinant_bytes=10), replace(_task(2), name="count/1"), generation=2)
    assert job.value("clonos_causal_log_written_bytes_total", **TASK) == 110


def test_a_counter_that_begins_again_with_each_incarnation_goes_on() -> None:
    job = _Job(_status(_task(1, records_out=100, executed_calls=7)))
    job.collector.sample()
    job.status = _status(_task(2, records_out=30))
    assert job.value("clonos_records_sent_total", **TASK) == 130
    assert job.value("clonos_live_calls_total", **TASK) == 7
    job.status = _status(_task(2, records_out=40, executed_calls=2))
    assert job.value("clonos_records_sent_total", **TASK) == 140
    assert job.value("clonos_live_calls_total", **TASK) == 9


def test_each_phase_of_a_recovery_is_counted_once_however_often_it_is_read() -> None:
    detected = {"failed": SECOND_NS // 2, "detected": SECOND_NS, "view": 2 * SECOND_NS}
    job = _Job(_status(_task(2), recoveries=(RecoveryState("count/0", 1, 2, "killed", detected),)))
    job.collector.sample()
    over = {**detected, "gathered": 5 * SECOND_NS, "replayed": 5 * SECOND_NS, "caught_up": 9 * SECOND_NS}
    job.status = _status(_task(2), recoveries=(RecoveryState("count/0", 1, 2, "killed", over),))
    for _ in range(2):
        assert job.value("clonos_recoveries_total", **TASK) == 1
        assert job.value("clonos_recovery_duration_seconds_sum", **JOB) == 4.5
        sums = [job.value("clonos_recovery_phase_seconds_sum", **JOB, phase=phase) for phase in over]
        assert sums == [None, 0.5, 1, 3, 0, 4]
    again = {name: at_ns + 100 * SECOND_NS for name, at_ns in over.items()}
    both = tuple(RecoveryState("count/0", 0, life, "a rollback", reached) for life, reached in ((2, over), (3, again)))
    job.status = _status(_task(3), recoveries=both, generation=9)
    assert job.value("clonos_recoveries_total", **TASK) == 2
    assert job.value("clonos_rollbacks_total", **JOB) == 1


def test_late_records_have_the_label_of_their_step_and_a_family_from_the_start() -> None:
    job = _Job(_status(_task(1)))
    assert b"# TYPE clonos_late_records_total counter" in exposition(job.collector)
    job.status = _status(replace(_task(1), metrics=late_families(window=5)))
    assert job.value("clonos_late_records_total", **TASK, step="window") == 5


def test_a_move_is_counted_apart_from_recoveries() -> None:
    move = RecoveryState("count/0", 1, 2, "it moves", {"detected": SECOND_NS, "view": 2 * SECOND_NS})
    job = _Job(replace(_status(_task(2)), moves=(move,)))
    for _ in range(2):
        assert job.value("clonos_moves_total", **TASK) == 1
        assert job.value("clonos_recoveries_total", **TASK) == 0
        assert job.value("clonos_recovery_duration_seconds_count", **JOB) == 0


def test_a_checkpoint_is_counted_when_it_ends() -> None:
    job = _Job(_status())
    job.checkpoints = (CheckpointState(1, 0, None, is_pending=True),)
    assert job.value("clonos_checkpoints_total", **JOB, outcome="completed") == 0
    job.checkpoints = (CheckpointState(1, 0, SECOND_NS // 4, is_pending=False), CheckpointState(2, 0, None, False))
    for _ in range(2):
        assert job.value("clonos_checkpoints_total", **JOB, outcome="completed") == 1
        assert job.value("clonos_checkpoints_total", **JOB, outcome="abandoned") == 1
        assert job.value("clonos_checkpoint_duration_seconds_bucket", **JOB, le="0.1") == 0
        assert job.value("clonos_checkpoint_duration_seconds_bucket", **JOB, le="0.25") == 1


def test_a_histogram_counts_a_step_of_the_clock_back_as_nothing() -> None:
    histogram = DurationHistogram((1.0, 2.0))
    for value_s in (-5.0, 1.0, 1.5, 99.0):
        histogram.add(value_s)
    assert histogram.buckets == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert histogram.sum_s == 101.5


def test_the_metrics_of_several_drivers_are_one_text_with_the_ids_of_the_server() -> None:
    jobs = [_Job(_status(_task(1, records_in=n), job_id=f"sums-{n}")) for n in (1, 2)]
    own = "# TYPE clonos_server_drivers gauge\nclonos_server_drivers 2.0\n"
    text = merged(own, {f"at-server-{n}": exposition(job.collector).decode() for n, job in enumerate(jobs)}).decode()
    assert text.count("# TYPE clonos_records_processed_total counter\n") == 1
    found = {family.name: family for family in text_string_to_metric_families(text)}
    samples = found["clonos_records_processed"].samples
    assert {(sample.labels["job_id"], sample.value) for sample in samples} == {
        ("at-server-0", 1.0),
        ("at-server-1", 2.0),
    }
    assert [sample.labels for sample in found["clonos_server_drivers"].samples] == [{}]


def test_silent_connections_to_an_endpoint_keep_no_scrape_out() -> None:
    with closing(MetricsEndpoint("127.0.0.1", 0, lambda: _status(_task(1, records_in=5)), tuple)) as endpoint:
        port = int(endpoint.url.rpartition(":")[2].partition("/")[0])
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 20)) for _ in range(40)]
            with urllib.request.urlopen(endpoint.url, timeout=20) as answer:
                assert answer.status == 200
            assert silent[0].recv(1) == b""


def test_an_endpoint_serves_until_it_is_closed_and_refuses_a_port_in_use() -> None:
    endpoint = MetricsEndpoint("127.0.0.1", 0, lambda: _status(_task(1, records_in=5)), tuple)
    try:
        with urllib.request.urlopen(endpoint.url, timeout=20) as answer:
            assert b'clonos_records_processed_total{job="sums"' in answer.read()
        port = int(endpoint.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(MetricsPortTaken, match=f"127.0.0.1:{port}: Address already in use. Name another port"):
            MetricsEndpoint("127.0.0.1", port, _status, tuple)
    finally:
        endpoint.close()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 5):
        pass
