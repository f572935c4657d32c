"""Lines that a source cannot decode go to the error output of the job, and the job continues with the next line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, collect, sockets
from clonos.api.graph import JobGraph
from clonos.connectors import files
from clonos.connectors.connector_errors import InputMalformed
from clonos.connectors.sockets import SocketLineMalformed
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import StepFailed
from clonos.operators.connector_contract import MalformedRecord
from clonos.operators.user_errors import RoutedError
from clonos.testing import Outputs, crash_test
from tests.unit.operators.driver import Outbox, Run, run

Make = Callable[[Path], Any]

JSON = b'{"a": 1}\n{"a": 2,}\n\n{"a": 3}\nnot json\n{"a": "\xff"}\n{"a": 4}'
JSON_ERRORS = [
    ('{"a": 2,}', 9, "the line '{\"a\": 2,}' is not JSON"),
    ("not json", 29, "the line 'not json' is not JSON"),
    (b'{"a": "\xff"}', 45, "b'\\xff' is not utf-8"),
]
TEXT = b"one\r\ntw\xff\nthree\n\xfe\n"


def finished(path: Path, content: bytes, make: Make, records_max: int) -> tuple[list[Any], list[RoutedError]]:
    path.write_bytes(content)
    graph = JobGraph("job", errors=Outbox())
    graph.source(make(path), name="read").map(lambda row: row, name="pass_on").sink(Outbox(), name="rows")
    written = run(graph, parallelism=1, records_max=records_max).written
    errors = written.pop("errors", [])
    return [row for rows in written.values() for row in rows], errors


@pytest.mark.parametrize("records_max", [1, 2, 7])
@pytest.mark.parametrize("block_bytes", [1, 10, None])
def test_a_line_that_is_not_json_goes_to_the_error_output(
    tmp_path: Path, records_max: int, block_bytes: int | None
) -> None:
    path = tmp_path / "in.jsonl"
    rows, errors = finished(path, JSON, lambda path: files.jsonl(path, block_bytes=block_bytes), records_max)
    assert rows == [{"a": 1}, {"a": 3}, {"a": 4}]
    assert [(error.step, error.record) for error in errors] == [("read", record) for record, _, _ in JSON_ERRORS]
    for error, (_, offset_bytes, reason) in zip(errors, JSON_ERRORS, strict=True):
        line = JSON[:offset_bytes].count(b"\n") + 1
        assert f"InputMalformed: {path} at byte {offset_bytes}, line {line}: {reason}" in error.error


@pytest.mark.parametrize("records_max", [1, 7])
@pytest.mark.parametrize("with_position", [False, True])
def test_a_line_that_is_not_text_goes_to_the_error_output(
    tmp_path: Path, records_max: int, with_position: bool
) -> None:
    path = tmp_path / "in.txt"
    make: Any = partial(files.lines, with_position=with_position)
    rows, errors = finished(path, TEXT, make, records_max)
    assert rows == ([(str(path), 0, "one"), (str(path), 9, "three")] if with_position else ["one", "three"])
    assert [error.record for error in errors] == [b"tw\xff", b"\xfe"]
    assert f"{path} at byte 7, line 2: b'\\xff' is not utf-8" in errors[0].error


def test_a_name_that_is_not_text_is_an_error_of_its_line_while_columns_are_inferred(tmp_path: Path) -> None:
    content = b'{"a": 1}\n{"a": 2, "\xec": 3}\n{"a": 4, "b": {"\xec": 5}}\n{"a": 6}\n'
    rows, errors = finished(tmp_path / "in.jsonl", content, lambda path: files.jsonl(path, columns=True), 7)
    assert [row["a"] for row in rows] == [1, 6]
    assert all("is not utf-8" in error.error for error in errors)
    assert len(errors) == 2


def test_a_file_of_malformed_lines_gives_no_rows(tmp_path: Path) -> None:
    rows, errors = finished(tmp_path / "in.jsonl", b"one\ntwo\n", files.jsonl, 7)
    assert (rows, [error.record for error in errors]) == ([], ["one", "two"])


@pytest.mark.parametrize(
    ("make", "content", "record"), [(files.jsonl, JSON, '{"a": 2,}'), (files.lines, TEXT, r"b'tw\xff'")]
)
def test_without_an_error_output_the_line_fails_the_job(
    tmp_path: Path, make: Make, content: bytes, record: str
) -> None:
    (tmp_path / "in").write_bytes(content)
    graph = JobGraph("job")
    graph.source(make(tmp_path / "in"), name="read").sink(Outbox(), name="rows")
    job = Run(graph.compile(Options(), parallelism=1))
    with pytest.raises(StepFailed) as raised:
        job.finish()
    job.close()
    assert isinstance(raised.value.__cause__, InputMalformed)
    assert (raised.value.at.step, raised.value.at.record) in {("read", record), ("read", repr(record))}


def test_a_line_of_a_server_that_is_not_text_is_set_aside() -> None:
    first, second, third = sockets.lines("localhost", 1).decode([b"one\r\n", b"tw\xff\n", b"three\n"])
    assert (first, third) == ("one", "three")
    assert isinstance(second, MalformedRecord)
    assert second.record == b"tw\xff"
    assert isinstance(second.error, SocketLineMalformed)
    assert "encoding=" in str(second.error)


@pytest.mark.slow
def test_malformed_lines_reach_the_error_output_once_though_processes_die(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{number}\n" if number % 5 else f"bad {number}\n" for number in range(1, 101)))

    def check(outputs: Outputs) -> None:
        assert sorted(outputs["sink"]) == [number for number in range(1, 101) if number % 5]
        assert sorted(error.record for error in outputs["errors"]) == sorted(f"bad {5 * n}" for n in range(1, 21))

    job = Job("setting_aside", errors=collect())
    job.source(files.jsonl(path), name="read").rebalance().map(lambda row: row).sink(collect())
    report = crash_test(job, seeds=range(6), check=check)
    assert report.injected["kill"] > 0
