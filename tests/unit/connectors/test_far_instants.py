"""Values of other systems that 64 bits of nanoseconds, JSON or SQLite do not hold: right, or an error."""

import datetime as dt
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from clonos.connectors import files, sqlite
from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.web.paging import reply_of
from clonos.core.values.column_rows import values_of_column
from clonos.io.http.http_client import HttpReply
from clonos.operators.connector_contract import PartlyMalformed
from tests.unit.connectors.reading import read_all, rows_and_errors

SENTINELS = [dt.datetime(2020, 1, 1), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)]


def test_instants_of_96_bits_keep_the_years_that_nanoseconds_do_not_reach(tmp_path: Path) -> None:
    table = pyarrow.table({"at": pyarrow.array(SENTINELS, pyarrow.timestamp("us"))})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet", use_deprecated_int96_timestamps=True)
    assert [row["at"] for row in read_all(files.parquet(tmp_path / "in.parquet"))] == SENTINELS


def _with_nanoseconds(path: Path, *, rows: int = 6) -> None:
    """Writes 96 bits as Impala does: with nanoseconds, here in each third row, and in a list of the second to last."""
    at = pyarrow.array([None, *(n * 1_000 + (n % 3 == 0) for n in range(1, rows))], pyarrow.timestamp("ns"))
    listed = pyarrow.array(
        [[1_000, n] for n in [5_000] * (rows - 2) + [7_001, 2_000]], pyarrow.list_(pyarrow.timestamp("ns"))
    )
    table = pyarrow.table({"n": range(rows), "at": at, "all": listed})
    pyarrow.parquet.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=4)


@pytest.mark.parametrize("columns", [["n", "at"], ["n", "all"], ["n"], None])
def test_nanoseconds_of_instants_of_96_bits_are_errors_beside_good_rows(tmp_path: Path, columns: Any) -> None:
    _with_nanoseconds(tmp_path / "in.parquet")
    rows, errors = rows_and_errors(files.parquet(tmp_path / "in.parquet", columns=columns))
    wrong = {3: "its at, 1970-01-01 00:00:00.000003001", 4: "its all, 1970-01-01 00:00:00.000007001"}
    if columns:
        wrong = {row: reason for row, reason in wrong.items() if reason.split()[1].rstrip(",") in columns}
    assert [row["n"] for row in rows] == [n for n in range(6) if n not in wrong]
    for (row, reason), error in zip(wrong.items(), errors, strict=True):
        assert f"row {row}: {reason}, has nanoseconds, which an instant of a record does not have" in error
    for row in rows if columns == ["n", "at"] else ():
        assert row["at"] == (None if not row["n"] else dt.datetime(1970, 1, 1, microsecond=row["n"]))


def test_far_instants_of_96_bits_with_nanoseconds_are_errors_too(tmp_path: Path) -> None:
    _with_nanoseconds(tmp_path / "in.parquet", rows=4)
    data = (tmp_path / "in.parquet").read_bytes()
    assert data.count((3_001).to_bytes(8, "little") + (2_440_588).to_bytes(4, "little"))  # since midnight, and the day
    far = data.replace((2_440_588).to_bytes(4, "little"), (5_373_484).to_bytes(4, "little"))
    (tmp_path / "in.parquet").write_bytes(far)
    rows, (error,) = rows_and_errors(files.parquet(tmp_path / "in.parquet", columns=["n", "at"]))
    assert [row["at"] for row in rows[1:]] == [dt.datetime(9999, 12, 31, microsecond=n) for n in (1, 2)]
    assert "its at, 9999-12-31 00:00:00.000003001, has nanoseconds" in error


def test_rows_around_errors_are_read_from_any_place(tmp_path: Path) -> None:
    _with_nanoseconds(tmp_path / "in.parquet", rows=20)
    source = files.parquet(tmp_path / "in.parquet", columns=["n", "at"], ordered=True)
    (split,) = source.splits(1)
    for sizes in ([1], [2, 3], [7]):
        mark, found = None, list[Any]()
        for size in cycle(sizes):
            reader = source.reader()
            reader.open(split, mark)
            some: Any = reader.read(size)
            mark = reader.mark()
            reader.close()
            if some is None:
                break
            found += (
                [row.record["n"] for row in some] if isinstance(some, PartlyMalformed) else some.column("n").to_pylist()
            )
        assert found == list(range(20))


def test_the_nanoseconds_of_a_time_are_not_cut_off() -> None:
    assert values_of_column(pyarrow.array([1_000, None], pyarrow.time64("ns"))) == [dt.time(0, 0, 0, 1), None]
    with pytest.raises(ValueError, match="would lose data"):
        values_of_column(pyarrow.array([123_456_789], pyarrow.time64("ns")))


def test_nan_is_not_written_to_sqlite_as_null(tmp_path: Path) -> None:
    sink = sqlite(tmp_path / "out.db", "numbers")
    assert sink.field(float("inf")) == float("inf")
    with pytest.raises(RowNotWritable, match="its n is nan, for which SQLite stores NULL"):
        sink.check_row({"n": float("nan")})


def test_a_byte_order_mark_before_an_answer_is_not_a_part_of_its_json() -> None:
    reply = reply_of(HttpReply(200, "OK", "http://localhost/", (), b'\xef\xbb\xbf{"a": 1}'))
    assert reply.json() == {"a": 1}
