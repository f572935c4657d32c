"""Records of columns that Python cannot hold: each is an error of its own where columns become rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import files
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.values.column_rows import values_of_column
from tests.unit.operators.driver import Outbox, Run, run

NANOSECOND, YEAR_10000 = 1_577_836_800_123_456_789, 253_402_300_800
BAD: dict[str, tuple[Any, list[Any], str]] = {
    "time": (pyarrow.time64("ns"), [1_000, 123_456_789, None, 2_000], "00:00:00.123456789"),
    "instant": (pyarrow.timestamp("ns", "UTC"), [1_000, NANOSECOND, None, 2_000], "2020-01-01 00:00:00.123456789Z"),
    "far": (pyarrow.timestamp("s"), [1, YEAR_10000, None, 2], "10000-01-01 00:00:00"),
    "day": (pyarrow.date32(), [1, 2**31 - 1, None, 2], "<value out of range: 2147483647>"),
    "length": (pyarrow.duration("ns"), [1_000, 1, None, 2_000], "1"),
    "list": (pyarrow.list_(pyarrow.time64("ns")), [[1_000], [1], None, []], "[00:00:00.000000001]"),
    "field": (
        pyarrow.struct([("a", pyarrow.timestamp("s"))]),
        [{"a": 1}, {"a": YEAR_10000}, None, {"a": None}],
        "{a: 10000-01-01 00:00:00}",
    ),
}


def given(path: Path, kind: Any, numbers: list[Any]) -> Any:
    table = pyarrow.table({"n": list(range(len(numbers))), "x": _array(kind, numbers)})
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return files.arrow(str(path))


def _array(kind: Any, numbers: list[Any]) -> Any:
    if pyarrow.types.is_struct(kind):
        fields = [None if each is None else each["a"] for each in numbers]
        children = [_array(kind.field(0).type, fields)]
        return pyarrow.StructArray.from_arrays(children, ["a"], mask=pyarrow.array([each is None for each in numbers]))
    if pyarrow.types.is_list(kind):
        return pyarrow.array(numbers, pyarrow.list_(pyarrow.int64())).cast(kind)
    return pyarrow.array(numbers, pyarrow.int32() if pyarrow.types.is_date32(kind) else pyarrow.int64()).view(kind)


def ended(source: Any, steps: Callable[[Any], Any], errors: Any) -> Run:
    graph = JobGraph("job", errors=errors)
    steps(graph.source(source, name="read")).rebalance().sink(Outbox(), name="out")
    return run(graph, parallelism=1)


STEPS: dict[str, Callable[[Any], Any]] = {
    "map": lambda stream: stream.map(lambda row: row["n"], name="step"),
    "filter": lambda stream: stream.filter(lambda row: True, name="step").map(lambda row: row["n"]),
    "deduplicate": lambda stream: stream.deduplicate(lambda row: row["n"], name="step").map(lambda row: row["n"]),
    "keyed": lambda stream: stream.key_by("n").reduce(lambda one, other: other, name="step").map(lambda row: row[0]),
    "chosen": lambda stream: stream.partition_custom(lambda row, tasks: 0, name="step").map(lambda row: row["n"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_record_that_python_cannot_hold_is_an_error_and_the_records_around_it_go_on(
    tmp_path: Path, kind: str
) -> None:
    type_, numbers, text = BAD[kind]
    done = ended(given(tmp_path / "in.arrow", type_, numbers), STEPS["map"], Outbox())
    assert done.written["out"] == [0, 2, 3]
    (error,) = done.written["errors"]
    assert error.step == "step"
    assert error.record["n"] == 1
    assert text in error.record["x"]
    assert error.error.startswith("FieldNotPython: the field 'x' is ")
    assert text in error.error


@pytest.mark.parametrize("steps", STEPS)
def test_every_step_on_rows_sets_such_a_record_aside(tmp_path: Path, steps: str) -> None:
    type_, numbers, _ = BAD["instant"]
    done = ended(given(tmp_path / "in.arrow", type_, numbers), STEPS[steps], Outbox())
    assert sorted(done.written["out"]) == [0, 2, 3]
    assert [error.record["n"] for error in done.written["errors"]] == [1]


def test_without_an_error_output_such_a_record_fails_the_job_by_its_field(tmp_path: Path) -> None:
    type_, numbers, _ = BAD["time"]
    with pytest.raises(StepFailed) as failed:
        ended(given(tmp_path / "in.arrow", type_, numbers), STEPS["map"], None)
    assert "the field 'x' is 00:00:00.123456789, a time64[ns]" in str(failed.value.__cause__)


def test_a_stream_of_columns_passes_such_records_on_as_they_are(tmp_path: Path) -> None:
    type_, numbers, _ = BAD["instant"]
    sink = files.parquet(str(tmp_path / "out"))
    sink.prepare_output("job-1", False, False)
    graph = JobGraph("job", errors=Outbox())
    graph.source(given(tmp_path / "in.arrow", type_, numbers), name="read").sink(sink, name="out")
    done = run(graph, parallelism=1)
    assert "errors" not in done.written
    (((part,),),) = [[parts] for parts in done.prepared.values()]
    sink.commit("job-1", 1, [part])
    assert pyarrow.parquet.read_table(tmp_path / "out").column("x").cast(pyarrow.int64()).to_pylist() == numbers


def test_values_in_nanoseconds_are_plain_python_wherever_their_digits_allow_it() -> None:
    number = 1_577_836_800_123_456_000
    at = dt.datetime(2020, 1, 1, 0, 0, 0, 123_456)
    kind = pyarrow.timestamp("ns")
    for type_, value, wanted in [
        (kind, number, at),
        (pyarrow.list_(kind), [number], [at]),
        (pyarrow.struct([("a", kind)]), {"a": number}, {"a": at}),
        (pyarrow.map_(pyarrow.string(), kind), [("k", number)], [("k", at)]),
        (pyarrow.list_(pyarrow.duration("ns")), [1_000], [dt.timedelta(microseconds=1)]),
    ]:
        (found,) = values_of_column(pyarrow.array([value], type_))
        assert found == wanted
        assert type(found) is type(wanted)


def test_values_that_no_record_of_a_slice_has_refuse_none_of_its_records() -> None:
    kind = pyarrow.timestamp("ns")
    lists = pyarrow.array([[1_000], [1], [2_000]], pyarrow.list_(kind))
    assert values_of_column(lists.slice(2)) == [[dt.datetime(1970, 1, 1, 0, 0, 0, 2)]]
    texts = pyarrow.array([1_000, 1], kind).dictionary_encode()
    assert values_of_column(texts.slice(0, 1)) == [dt.datetime(1970, 1, 1, 0, 0, 0, 1)]
