"""Values of every kind at their ends, through ``postgres.table`` and back: as they were, or an error of their row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow
import pytest

from clonos.connectors import postgres as pg
from clonos.connectors.connector_errors import RowNotWritable
from tests.connectors.postgres.table_samples import identity, registered
from tests.connectors.servers.postgres import PostgresServer
from tests.unit.connectors.refusing import numbered
from tests.unit.connectors.test_exact_arrays import ENDS

pytestmark = pytest.mark.connectors

UTC: Any = dt.UTC
MORE = [
    *(Decimal("sNaN"), Decimal("-1E+3"), UUID(int=7), str(UUID(int=7)), '{"a": 1}', '{"a": 1, "a": 2}', "[1e999999]"),
    *("1.5", "1.555", "true", "2020-01-01", "2020-01-01T05:00:00+02:00", "P1DT5S", "PT", r"\xff", r"\xf", "infinity"),
]
TYPES = (
    *("smallint", "integer", "bigint", "numeric", "numeric(5,2)", "numeric(60,3)", "real", "double precision"),
    *("boolean", "text", "varchar(3)", "char(2)", "bytea", "date", "time", "time(3)", "timetz", "interval", "uuid"),
    *("timestamp", "timestamp(0)", "timestamptz", "timestamptz(3)", "json", "jsonb"),
)


def is_alike(given: Any, found: Any, type_name: str) -> bool:
    """Equal, or the same in the form that the type has been asked for."""
    if type_name in ("text", "varchar(3)", "char(2)", "json", "jsonb"):
        return not isinstance(found, str) or found.rstrip() == str(given).rstrip() or found[:1] in "[{"
    if str(given).lower() == "nan":
        return str(found).lower() == "nan"
    if type_name == "real" and isinstance(given, float):
        return bool(found == pytest.approx(given, rel=1e-7))
    if isinstance(given, float | Decimal) or isinstance(found, float | Decimal):
        return bool(given == found or Decimal(str(given)) == Decimal(str(found)))
    return isinstance(given, str) or bool(found == given) or str(found) == str(given)


@pytest.mark.parametrize("type_name", TYPES)
def test_a_column_holds_a_value_as_it_is_or_its_row_is_an_error(postgres: PostgresServer, type_name: str) -> None:
    values = [value for value in [*ENDS, *MORE] if value is not None]
    sink = pg.table(postgres.full_url, "ends", {"number": "int", "value": type_name})
    sink.check_start()
    good, errors = numbered(sink, [{"number": number, "value": value} for number, value in enumerate(values)])
    with registered(sink, identity(1)) as writer:
        assert writer.write(0, good) == len(good)
    assert len(good) + len(errors) == len(values)
    assert all(error.error.startswith("RowNotWritable: postgres.table cannot write the row") for error in errors)
    assert all("its value is" in error.error for error in errors)
    assert good
    text = "value" if type_name[:4] not in ("time", "date", "inte") or type_name == "integer" else "value::text"
    for number, found in postgres.run(f"SELECT number, {text} FROM ends"):
        if text == "value":
            assert is_alike(values[number], found, type_name), (values[number], found)
    for row in good:
        if isinstance(row["value"], dt.date | dt.time | dt.timedelta) and type_name[:4] in ("time", "date", "inte"):
            at = postgres.run(f"SELECT value = '{_literal(row['value'])}' FROM ends WHERE number = {row['number']}")
            assert at == [(True,)], row


def _literal(value: Any) -> str:
    if isinstance(value, dt.timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    return str(value)


def test_rows_that_an_existing_table_refuses_are_errors_of_their_own(postgres: PostgresServer) -> None:
    postgres.run("CREATE DOMAIN price AS numeric(5,2) NOT NULL")
    postgres.run("CREATE TABLE orders (id serial, n int NOT NULL, price price, tags text[])")
    sink = pg.table(postgres.full_url, "orders")
    sink.check_start()
    fine = {"n": 1, "price": Decimal("1.50")}
    bad = [
        {"n": 1, "price": 1.555},
        {"n": None, "price": 1},
        {"n": 1, "price": 1, "more": 1},
        {"n": 1, "price": 2, "tags": ["a"]},
    ]
    good, errors = numbered(sink, [fine, *bad, fine])
    assert good == [fine, fine]
    assert [error.record for error in errors] == bad
    with registered(sink, identity(1)) as writer:
        writer.write(0, good)
        with pytest.raises(RowNotWritable, match=r"its price is 1.555, which a column of the type numeric\(5,2\)"):
            writer.write(2, [bad[0]])
    assert postgres.run("SELECT id, n, price FROM orders") == [(1, 1, Decimal("1.50")), (2, 1, Decimal("1.50"))]


@pytest.mark.parametrize(
    ("type_name", "column", "bad"),
    [
        ("numeric(5,2)", pyarrow.array([Decimal("1.500"), Decimal("1.555"), None]), Decimal("1.555")),
        ("timestamp", pyarrow.array([1_000, 1_001, None], pyarrow.timestamp("ns")), None),
        ("timestamp", pyarrow.array([None, dt.datetime(2020, 1, 1, tzinfo=UTC)]), dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("text", pyarrow.array(["a", "\0", "b"]), "\0"),
        ("integer", pyarrow.array([1, 2**31, 2]), 2**31),
        ("real", pyarrow.array([1.5, 1e300]), 1e300),
    ],
)
def test_columns_are_written_as_they_are_or_their_rows_are_refused(
    postgres: PostgresServer, type_name: str, column: Any, bad: Any
) -> None:
    sink = pg.table(postgres.full_url, "ends", {"value": type_name})
    batch = pyarrow.record_batch({"value": column})
    with registered(sink, identity(1)) as writer, pytest.raises((RowNotWritable, ValueError)):
        writer.write_columns(0, batch)
    assert postgres.run("SELECT count(*) FROM ends") == [(0,)]
