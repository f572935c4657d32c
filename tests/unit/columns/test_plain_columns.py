"""Batches from outside: each column has its own name, and a type whose rows Arrow can take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest
from pyarrow import compute

from clonos import Job, collect, files, lit
from clonos.api.graph_errors import InvalidJob
from clonos.connectors.connector_errors import InvalidConnector
from clonos.expressions.expression_errors import InvalidExpression
from clonos.operators.columnar.plain_columns import ColumnRepeated, PlainColumns
from clonos.operators.steps.data_frames import NoFrame, as_batch
from clonos.testing import Outputs, crash_test

VIEW, VIEWED = pyarrow.string_view(), "a text that is longer than twelve bytes"
VIEWS = {
    "text": pyarrow.array(["a", None, VIEWED], VIEW),
    "bytes": pyarrow.array([b"a", None, b"x" * 20], pyarrow.binary_view()),
    "list": pyarrow.array([["a"], None, [VIEWED]], pyarrow.list_(VIEW)),
    "large": pyarrow.array([["a"], None, [VIEWED]], pyarrow.large_list(VIEW)),
    "fixed": pyarrow.array([["a", "b"], None, [VIEWED, "c"]], pyarrow.list_(VIEW, 2)),
    "struct": pyarrow.array([{"u": "a"}, None, {"u": VIEWED}], pyarrow.struct([("u", VIEW)])),
    "map": pyarrow.array([[("a", VIEWED)], None, []], pyarrow.map_(VIEW, VIEW)),
    "dictionary": pyarrow.array(["a", None, VIEWED], VIEW).dictionary_encode(),
    "runs": compute.run_end_encode(pyarrow.array(["a", "a", VIEWED])),
    "views of a list": pyarrow.array([[1], None, [2, 3]], pyarrow.list_view(pyarrow.int64())),
    "number": pyarrow.array([1, None, 3]),
}
REPEATED = pyarrow.RecordBatch.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["a", "a"])


@pytest.mark.parametrize("name", VIEWS)
def test_rows_of_plain_columns_can_be_taken(name: str) -> None:
    batch = pyarrow.record_batch({"c": VIEWS[name], "n": [1, 2, 3]})
    plain = PlainColumns().of(batch)
    plain.validate(full=True)
    assert plain.to_pylist() == batch.to_pylist()
    order = pyarrow.array([2, 0, 1, 2])
    assert plain.take(order).to_pylist() == [batch.to_pylist()[row] for row in order.to_pylist()]


def test_plain_columns_stay_as_they_are() -> None:
    batch = pyarrow.record_batch({"text": ["a"], "n": [1]})
    made = PlainColumns()
    assert made.of(batch) is batch
    assert made.of(pyarrow.record_batch({"n": VIEWS["text"]})).schema.types == [pyarrow.string()]
    assert made.of(batch) is batch


def test_a_join_takes_views_of_texts_from_files(tmp_path: Path) -> None:
    for side in ("left", "right"):
        (tmp_path / side).mkdir()
        table = pyarrow.table({"id": [3, 2, 1] if side == "left" else [1, 2, 4], "text": VIEWS["text"]})
        pyarrow.parquet.write_table(table, tmp_path / side / "a.parquet")
        assert pyarrow.parquet.read_schema(tmp_path / side / "a.parquet").field("text").type == VIEW

    def described() -> Job:
        job = Job("views")
        left, right = (job.source(files.parquet(f"{tmp_path}/{side}"), name=side) for side in ("left", "right"))
        joined = left.join(right, on="id", ttl="1h", how="full", name="joined")
        joined.select("text", "text_right").sink(collect(), name="out")
        return job

    def check(outputs: Outputs) -> None:
        found = sorted((str(row["text"]), str(row["text_right"])) for row in outputs["out"])
        assert found == [("None", "None"), ("None", VIEWED), ("a", "None"), (VIEWED, "a")]

    crash_test(described, seeds=[0], check=check, only_faults=[])


@pytest.mark.parametrize("frame", [REPEATED, pyarrow.Table.from_batches([REPEATED])], ids=["batch", "table"])
def test_columns_with_one_name_are_refused(frame: Any) -> None:
    with pytest.raises(ColumnRepeated, match=r"two columns with the name 'a' \(its columns are a, a\)"):
        as_batch(frame)


def test_a_file_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    table = pyarrow.table([[1], [2], [3]], names=["a", "a", "b"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InvalidConnector, match=r"two columns with the name 'a'.*select others with columns="):
        files.parquet(str(tmp_path)).splits(1)
    assert files.parquet(str(tmp_path), columns=["b"]).splits(1)


WITHIN = pyarrow.StructArray.from_arrays([pyarrow.array([1]), pyarrow.array(["x"])], names=["b", "b"])
LISTED = pyarrow.ListArray.from_arrays([0, 1], WITHIN)


@pytest.mark.parametrize(
    ("column", "name"), [(WITHIN, "a.b"), (LISTED, r"a\.(item|element)\.b")], ids=["struct", "list"]
)
def test_fields_with_one_name_within_a_column_are_refused(tmp_path: Path, column: Any, name: str) -> None:
    table = pyarrow.table({"a": column, "n": [1]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pyarrow.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as file:
        file.write_table(table)
    for source, path in ((files.parquet, "a.parquet"), (files.arrow, "a.arrow")):
        with pytest.raises(InvalidConnector, match=f"two columns with the name '{name}'"):
            source(str(tmp_path / path)).splits(1)
        assert source(str(tmp_path / path), columns=["n"]).splits(1)
        with pytest.raises(InvalidConnector, match=f"two columns of schema= have the name '{name}'"):
            source(str(tmp_path), schema=table.schema)
    with pytest.raises(ColumnRepeated, match=f"two columns with the name '{name}'"):
        as_batch(table)


def test_columns_with_one_name_in_a_schema_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    for source in (
        lambda: files.parquet(str(tmp_path), schema=REPEATED.schema),
        lambda: files.arrow(str(tmp_path), schema=REPEATED.schema),
        lambda: files.csv(str(tmp_path / "a.csv"), schema=REPEATED.schema).splits(1),
        lambda: files.jsonl(str(tmp_path / "a.json"), schema=REPEATED.schema).splits(1),
    ):
        with pytest.raises(InvalidConnector, match="two columns of schema= have the name 'a'"):
            source()


def test_records_are_not_lost_with_their_last_column(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2]}), tmp_path / "a.parquet")
    source = Job("dropped").source(files.parquet(str(tmp_path)), name="in")
    with pytest.raises(InvalidExpression, match="no column is left, and so no record"):
        source.with_columns(b=lit(1)).drop("a", "b", name="dropped")


@pytest.mark.parametrize(("rank", "what"), [("price", "values"), ("user", "key")])
def test_a_rank_that_would_replace_the_key_or_the_values_is_refused(tmp_path: Path, rank: str, what: str) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"user": [1], "price": [2]}), tmp_path / "a.parquet")
    source = Job("ranks").source(files.parquet(str(tmp_path)), name="in")
    with pytest.raises(InvalidJob, match=f"gets rank='{rank}', the field of the {what}"):
        source.key_by("user").top_k(2, "price", rank=rank)


def test_a_lazy_frame_is_refused_with_how_to_compute_it() -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(NoFrame, match=r"Compute a LazyFrame with \.collect\(\)"):
        as_batch(polars.DataFrame({"a": [1]}).lazy())
