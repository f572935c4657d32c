"""The error output of a job: what its own sink cannot hold is written as text, and ends no job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import files, web
from tests.unit.operators.driver import Given, Outbox, run

RECORDS = [{"n": 1, "x": float("nan")}, {"n": 2, "x": 0.5}, {"n": 3, "x": [float("inf")]}]
TEXTS = ["{'n': 1, 'x': nan}", "{'n': 3, 'x': [inf]}"]
SCHEMA = pyarrow.schema([(name, pyarrow.string()) for name in ("step", "record", "error", "traceback")])


def _refuse(record: dict[str, Any]) -> None:
    raise ValueError(f"a lone surrogate \ud800 and a bell \a beside {record['n']}")


def _parquet(path: str) -> Any:
    return files.parquet(path, schema=SCHEMA)


@pytest.mark.parametrize("make", [files.jsonl, _parquet], ids=["jsonl", "parquet"])
def test_a_record_that_files_of_errors_cannot_hold_is_written_as_text(tmp_path: Path, make: Any) -> None:
    sink = make(str(tmp_path / "errors"))
    sink.prepare_output("job", False, False)
    graph = JobGraph("job", errors=sink)
    graph.source(Given(RECORDS)).map(_refuse, name="refuse").sink(Outbox(), name="out")
    for parts in run(graph, parallelism=1).prepared.values():
        sink.commit("job", 1, parts)
    errors = list(files.read_committed(tmp_path / "errors"))
    assert len(errors) == len(RECORDS)
    assert [error["record"] for error in errors if "0.5" not in str(error["record"])] == TEXTS
    assert all("a lone surrogate" in error["error"] for error in errors)


def test_a_record_that_cannot_be_a_message_about_an_error_is_sent_as_text() -> None:
    graph = JobGraph("job", errors=web.post("http://localhost:1/"))
    graph.source(Given(RECORDS)).map(_refuse, name="refuse").sink(Outbox(), name="out")
    errors = run(graph, parallelism=1).written["errors"]
    assert [error.record for error in errors] == [TEXTS[0], RECORDS[1], TEXTS[1]]
