"""Rows that a file cannot hold, such as NaN in JSON: refused by name, or set aside in the error output."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import files
from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.driver_outputs import default_row_text
from clonos.connectors.json_text import json_lines, json_text, scalar_text
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.user_errors import RoutedError
from tests.unit.operators.driver import Given, Outbox, run

NAN, INFINITY = math.nan, math.inf


@pytest.mark.parametrize(
    ("row", "where"),
    [
        (NAN, "row is nan"),
        (-INFINITY, "row is -inf"),
        ({"id": 1, "ratio": NAN}, "row['ratio'] is nan"),
        ({"id": 1, "all": [1.0, {"deep": INFINITY}]}, "row['all'][1]['deep'] is inf"),
        ([1, NAN], "row[1] is nan"),
        ({"none": None, "tags": frozenset({NAN})}, "row['tags'][0] is nan"),
    ],
)
def test_a_number_that_json_lacks_is_refused_with_its_place(row: object, where: str) -> None:
    with pytest.raises(RowNotWritable) as raised:
        json_lines([{"fine": None}, "null", row], "files.jsonl")
    assert raised.value.index == 2
    assert f"{where}, which JSON cannot express" in str(raised.value)
    assert "map before the sink" in str(raised.value)


def test_rows_with_none_and_the_text_null_are_written() -> None:
    rows = [{"a": None, "b": "null", "c": [None, 1.5]}, None, "null\nnull", "\ud800", {"a": None}]
    assert [json.loads(line) for line in json_lines(rows, "test").splitlines()] == rows


def test_a_terminal_and_a_cell_show_numbers_that_json_lacks_as_python_does() -> None:
    assert (
        default_row_text({"a": NAN, "b": [INFINITY, -INFINITY], "é": 1}) == '{"a":NaN,"b":[Infinity,-Infinity],"é":1}'
    )
    assert json_text(NAN) == scalar_text(NAN) == "NaN"
    assert math.isnan(json.loads(json_text([NAN]))[0])


def written(tmp_path: Path, sink: Any, rows: list[Any], errors: Outbox | None) -> tuple[str, list[RoutedError]]:
    graph = JobGraph("job", errors=errors)
    graph.source(Given(rows)).rebalance().sink(sink, name="write")
    sink.prepare_output("job-1", False, False)
    ended = run(graph, parallelism=1)
    for parts in ended.prepared.values():
        for part in parts:
            found = list(tmp_path.glob(f".out.clonos/parts/{msgspec.json.decode(part)[0]['name']}*"))
            return found[0].read_text(), ended.written.get("errors", [])
    return "", ended.written.get("errors", [])


def test_a_row_that_json_cannot_hold_goes_to_the_error_output_and_the_others_are_written(tmp_path: Path) -> None:
    rows = [{"n": number} for number in (1, NAN, 3, None, INFINITY)]
    text, errors = written(tmp_path, files.jsonl(tmp_path / "out"), rows, Outbox())
    assert [json.loads(line) for line in text.splitlines()] == [{"n": 1}, {"n": 3}, {"n": None}]
    assert [error.step for error in errors] == ["write", "write"]
    assert "row['n'] is nan" in errors[0].error
    assert errors[1].record == {"n": INFINITY}


def test_a_row_without_a_column_goes_to_the_error_output_and_the_header_is_written(tmp_path: Path) -> None:
    rows = [{"a": "\ud800"}, {"a": 1}, {"a": 2, "b": 3}, {"a": NAN}]
    text, errors = written(tmp_path, files.csv(tmp_path / "out"), rows, Outbox())
    assert text == "a\n1\nnan\n"
    assert [error.record for error in errors] == [{"a": "\ud800"}, {"a": 2, "b": 3}]


def test_a_row_that_json_cannot_hold_fails_a_job_without_an_error_output(tmp_path: Path) -> None:
    with pytest.raises(StepFailed) as raised:
        written(tmp_path, files.jsonl(tmp_path / "out"), [{"n": NAN}], None)
    assert raised.value.at.step == "write"
    assert "{'n': nan}: row['n'] is nan" in str(raised.value.__cause__)
