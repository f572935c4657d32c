"""Values of other systems that 64 bits of nanoseconds, JSON or SQLite do not hold: right, or an error."""

import datetime as dt
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from clonos.connectors import files, sqlite
from clonos.connectors.connector_errors import RowNotWritable
from clonos.connectors.web.paging import reply_of
from clonos.core.values.column_rows import values_of_column
from clonos.io.http.http_client import HttpReply
from tests.unit.connectors.reading import read_all

SENTINELS = [dt.datetime(2020, 1, 1), dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)]


def test_instants_of_96_bits_keep_the_years_that_nanoseconds_do_not_reach(tmp_path: Path) -> None:
    table = pyarrow.table({"at": pyarrow.array(SENTINELS, pyarrow.timestamp("us"))})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet", use_deprecated_int96_timestamps=True)
    assert [row["at"] for row in read_all(files.parquet(tmp_path / "in.parquet"))] == SENTINELS


def test_the_nanoseconds_of_a_time_are_not_cut_off() -> None:
    assert values_of_column(pyarrow.array([1_000, None], pyarrow.time64("ns"))) == [dt.time(0, 0, 0, 1), None]
    with pytest.raises(ValueError, match="would lose data"):
        values_of_column(pyarrow.array([123_456_789], pyarrow.time64("ns")))


def test_nan_is_not_written_to_sqlite_as_null(tmp_path: Path) -> None:
    sink = sqlite(tmp_path / "out.db", "numbers")
    assert sink.field(float("inf")) == float("inf")
    with pytest.raises(RowNotWritable, match="SQLite stores NULL for it"):
        sink.field(float("nan"))


def test_a_byte_order_mark_before_an_answer_is_not_a_part_of_its_json() -> None:
    reply = reply_of(HttpReply(200, "OK", "http://localhost/", (), b'\xef\xbb\xbf{"a": 1}'))
    assert reply.json() == {"a": 1}
