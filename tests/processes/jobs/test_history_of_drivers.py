"""History of a job whose tasks and drivers are killed: it outlives them, and has each death."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clonos import files
from clonos.io.store.object_files import LocalFiles
from clonos.job import Job
from clonos.job.run_history.history_events import (
    CheckpointDone,
    DriverStarted,
    Event,
    RunEnded,
    TaskFailure,
    TaskRecovered,
    WidthsChanged,
    read_events,
)
from clonos.job.run_history.history_lines import lines_of_history
from tests.processes.harness import gated_source
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_program import ENVIRONMENT
from tests.speed import scaled
from tests.waiting import await_condition

if TYPE_CHECKING:
    from tests.harnesses.otlp_collector import OtlpCollector

pytestmark = pytest.mark.processes

wait_until = partial(await_condition, scaled(50.0))


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    pytest.importorskip("opentelemetry.sdk")
    from tests.harnesses.otlp_collector import OtlpCollector

    with OtlpCollector() as found:
        yield found


def _events(store: Path) -> list[Event]:
    return read_events(LocalFiles(store))[0]


def _killed_driver(folder: Path, condition: Callable[[], bool], *arguments: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "clonos.cli", "run", "job.py", "--store", "store", *arguments],
        cwd=folder,
        env=os.environ | ENVIRONMENT,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(condition)
    finally:
        process.kill()
        process.wait()


def test_the_history_outlives_a_killed_driver_and_has_its_death(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    gate.open_to(100)
    (tmp_path / "gated_source.py").write_text(Path(gated_source.__file__).read_text("utf-8"), "utf-8")
    (tmp_path / "job.py").write_text(
        "from types import SimpleNamespace\n"
        "from clonos import Job, files\n"
        "from gated_source import GatedNumbers\n"
        'job = Job("reported", slots="process", checkpoint_every="100ms")\n'
        f"numbers = job.source(GatedNumbers(SimpleNamespace(path={str(gate.path)!r})), name='read')\n"
        'numbers.sink(files.jsonl("output"))\n',
        "utf-8",
    )
    store = tmp_path / "store"
    _killed_driver(tmp_path, lambda: any(isinstance(event, CheckpointDone) for event in _events(store)))
    first = _events(store)
    _killed_driver(tmp_path, lambda: len([e for e in _events(store) if isinstance(e, DriverStarted)]) == 2, "--resume")
    events = _events(store)
    assert [event for event in events if event.term == first[0].term] == first
    kinds = [line.kind for line in lines_of_history(events) if not line.kind.startswith("checkpoint")]
    assert kinds == ["start", "driver_death", "start", "driver_death"]
    starts = [event for event in events if isinstance(event, DriverStarted)]
    assert [start.how for start in starts] == ["afresh", "resumed"]
    assert starts[1].checkpoint >= 1
    assert starts[0].job_id == starts[1].job_id


def test_a_killed_task_is_a_failure_and_a_recovery_with_the_figures_of_the_status(
    tmp_path: Path, collector: OtlpCollector
) -> None:
    gate = Gate(tmp_path / "gate")
    gate.open_to(100)
    job = Job(
        "reported",
        store=tmp_path / "store",
        slots="process",
        checkpoint_every="100ms",
        telemetry=collector.url,
        trace_every="50ms",
        lineage=tmp_path / "lineage.jsonl",
    )
    numbers = job.source(GatedNumbers(gate), name="read").key_by(lambda n: n % 3)
    numbers.stateful_map(lambda _, seen, n: ((seen or 0) + 1, n), name="count").sink(files.jsonl(tmp_path / "output"))
    with job.start() as handle:
        wait_until(lambda: handle.status().checkpoint >= 2)
        (pid,) = (task.pid for task in handle.status().tasks if task.name.startswith("count"))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: any(each.is_over for each in handle.status().recoveries))
        assert handle.rescale(count=2).widths
        gate.end(200)
        status = handle.wait(scaled(50.0)).status
        shown = handle.history()
    events = _events(tmp_path / "store")
    recovery = status.recoveries[0]
    assert next(event for event in events if isinstance(event, TaskFailure)).task == recovery.task
    reported = next(event for event in events if isinstance(event, TaskRecovered))
    assert recovery.duration_ns is not None
    assert reported.duration_ms == pytest.approx(recovery.duration_ns / 1e6, abs=0.001)
    assert sum(reported.phases_ms.values()) == pytest.approx(reported.duration_ms, abs=0.01)
    changes = [event for event in events if isinstance(event, WidthsChanged)]
    assert changes[-1].phase == "done"
    assert changes[-1].tasks["count"] == 2
    assert isinstance(events[-1], RunEnded)
    assert events[-1].how == "finished"
    assert set(map(repr, shown)) == set(map(repr, events))
    lineage = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text("utf-8").splitlines()]
    assert [each["eventType"] for each in lineage] == ["START", "RUNNING", "COMPLETE"]
    assert lineage[-1]["run"]["facets"]["clonos_progress"]["recoveries"] >= 1
    assert lineage[-1]["outputs"] == [{"namespace": "file", "name": str(tmp_path / "output"), "facets": {}}]
    _check_spans(collector, reported, len([event for event in events if isinstance(event, CheckpointDone)]))


def _check_spans(collector: OtlpCollector, reported: TaskRecovered, checkpoints: int) -> None:
    recovered = [each for each in collector.named("recovery") if not each.parent_span_id]
    (span,) = (each for each in recovered if collector.attributes_of(each)["clonos.cause"] == reported.cause)
    assert span.end_time_unix_nano == reported.at_ns
    phases = [each for each in collector.spans if each.parent_span_id == span.span_id and each.name != "caught_up"]
    assert [each.name for each in phases] == list(reported.phases_ms)
    length_ms = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
    phases_ms = sum(each.end_time_unix_nano - each.start_time_unix_nano for each in phases) / 1e6
    assert phases_ms == pytest.approx(length_ms, abs=0.01)  # each phase is rounded to microseconds
    assert len(collector.named("checkpoint")) == checkpoints
    assert [collector.attributes_of(each)["clonos.how"] for each in collector.named("rescale")] == ["done"]
    assert [collector.attributes_of(each)["clonos.how"] for each in collector.named("job reported")] == ["finished"]
    assert collector.metrics["clonos_records_processed"].sum.data_points
    _check_ways(collector)


def _check_ways(collector: OtlpCollector) -> None:
    """Checks that a record that was read is followed into the task that counts it."""
    read = {each.span_id: each for each in collector.named("read")}
    ways = [(read[each.parent_span_id], each) for each in collector.named("count") if each.parent_span_id in read]
    assert ways
    for source, counted in ways:
        assert source.trace_id == counted.trace_id
        assert source.parent_span_id == b""
        assert source.start_time_unix_nano <= source.end_time_unix_nano <= counted.end_time_unix_nano
        queued_ns = counted.start_time_unix_nano - source.end_time_unix_nano
        assert collector.attributes_of(counted)["clonos.queued_ms"] == pytest.approx(max(0, queued_ns) / 1e6)
