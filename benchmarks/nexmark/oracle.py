"""DuckDB over the same files: what each query gives, and the comparison of a run with it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from benchmarks.harness.result_counter import WrongResult
from benchmarks.nexmark.queries import AUCTION, BID, PERSON, Check, Query
from benchmarks.nexmark.results import Results

VIEWS: Final = {
    "person": (PERSON, "id, name, email_address, credit_card, city, state"),
    "auction": (
        AUCTION,
        "auction_id AS id, item_name, description, initial_bid, reserve, CAST(expires AS TIMESTAMP) AS expires,"
        " seller, category",
    ),
    "bid": (BID, "auction, bidder, price, channel, url"),
}
EXAMPLES_MAX: Final = 3
LACK_WINDOWS: Final = frozenset({"q5", "q7", "q8", "q11"})
"""Queries of which Spark does not emit the windows that are open at the end."""


class Oracle:
    """Results of the queries over the events of a folder."""

    def __init__(self, folder: Path) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET preserve_insertion_order = true")
        files = str(folder / "*.parquet").replace("'", "''")
        for name, (kind, columns) in VIEWS.items():
            self._connection.execute(
                f"CREATE VIEW {name} AS SELECT {columns}, CAST(date_time AS TIMESTAMP) AS date_time, extra"
                f" FROM read_parquet('{files}') WHERE kind = {kind}"
            )
        self._expected: dict[str, str] = {}

    @cached_property
    def events(self) -> int:
        """Number of events."""
        found = self._connection.execute(
            "SELECT (SELECT COUNT(*) FROM person) + (SELECT COUNT(*) FROM auction) + (SELECT COUNT(*) FROM bid)"
        ).fetchone()
        assert found is not None, "a query of counts has a row"
        return int(found[0])

    def check(self, query: Query, results: Results) -> None:
        """Compares a result. Raises WrongResult."""
        self._prepare(query)
        if results.sums:
            self._check_sums(query, results.sums)
            return
        names = self._names(query)
        is_ranked = query.is_ranked and results.rows and len(results.rows[0]) != len(names)
        rows = results.ranked() if is_ranked else results.rows
        tables = [_table(names, rows)] if rows else []
        tables += [pa.table(batch).rename_columns(names) for batch in results.batches]
        self._check_table(query, names, tables)

    def check_flink(self, query: Query, rows: list[tuple[Any, ...]]) -> None:
        """Compares the final rows of Flink, by its rule; totals may lack its last windows. Raises WrongResult."""
        self._prepare(query, query.oracle_sql_of_flink)
        names = self._names(query)
        if query.check is Check.TOTALS:
            most, found = dict(self.rows(query)), Counter[Any]()
            for key, count in rows:
                found[key] += count
            if wrong := {key: count for key, count in found.items() if count > most.get(key, 0)}:
                raise WrongResult(
                    f"{query.name}: totals that are too high, such as {sorted(wrong.items())[:EXAMPLES_MAX]}"
                )
            return
        self._check_table(query, names, [_table(names, [row[: len(names)] for row in rows])])

    def check_spark(self, query: Query, rows: list[tuple[Any, ...]]) -> None:
        """Compares the rows of Spark, in their order; of windows it may lack some. Raises WrongResult."""
        self._prepare(query)
        names = self._names(query)
        table = _table(names, rows)
        if query.name not in LACK_WINDOWS:
            self._check_table(query, names, [table])
            return
        self._connection.register("given", table)
        casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in self._types(query).items())
        wrong = self._beyond(f"SELECT {casts} FROM given", f"SELECT * FROM expected_{query.name}")
        self._connection.unregister("given")
        if wrong or not rows:
            raise WrongResult(f"{query.name}: rows that should not be there, such as {wrong}, of {len(rows)} rows")

    def rows(self, query: Query) -> list[tuple[Any, ...]]:
        """Returns what DuckDB gives."""
        self._prepare(query)
        return self._connection.execute(f"SELECT * FROM expected_{query.name}").fetchall()

    def _prepare(self, query: Query, sql: str = "") -> None:
        sql = sql or query.oracle_sql
        if self._expected.get(query.name) != sql:
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE expected_{query.name} AS {sql}")
            self._expected[query.name] = sql

    def _names(self, query: Query) -> list[str]:
        found = self._connection.execute(f"DESCRIBE expected_{query.name}").fetchall()
        return [name for name, *_ in found]

    def _types(self, query: Query) -> dict[str, str]:
        return {name: kind for name, kind, *_ in self._connection.execute(f"DESCRIBE expected_{query.name}").fetchall()}

    def _check_sums(self, query: Query, sums: list[Any]) -> None:
        parts = ["COUNT(*)"]
        for name, kind in self._types(query).items():
            if kind == "VARCHAR":
                parts.append(f"COALESCE(SUM(LENGTH({name})), 0)")
            else:
                parts.append("NULL" if kind == "TIMESTAMP" else f"COALESCE(SUM({name}), 0)")
        expected = self._connection.execute(f"SELECT {', '.join(parts)} FROM expected_{query.name}").fetchone()
        if expected is None or list(expected) != sums:
            raise WrongResult(f"{query.name}: the sums of the columns are {sums} instead of {list(expected or ())}")

    def _check_table(self, query: Query, names: list[str], tables: list[pa.Table]) -> None:
        kinds = self._types(query)
        given = pa.concat_tables(tables, promote_options="permissive") if tables else _table(names, [])
        given = given.append_column("place_", pa.array(range(given.num_rows), pa.int64()))
        self._connection.register("given", given)
        casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())
        keys = ", ".join(names[: query.key])
        source = f"SELECT {casts}, place_ FROM given"
        expected = f"SELECT * FROM expected_{query.name}"
        if query.check is Check.TOTALS:
            source = f"SELECT {keys}, CAST(SUM({names[-1]}) AS BIGINT) AS {names[-1]} FROM ({source}) GROUP BY {keys}"
        elif query.key:
            source = (
                f"SELECT * EXCLUDE (place_) FROM ({source}) QUALIFY place_ = MAX(place_) OVER (PARTITION BY {keys})"
            )
        else:
            source = f"SELECT * EXCLUDE (place_) FROM ({source})"
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE actual AS {source}")
        actual = "SELECT * FROM actual"
        if query.check is Check.ONE_OF_TIES:
            keys_actual, keys_expected = (f"SELECT DISTINCT {keys} FROM ({one})" for one in (actual, expected))
            missing = self._beyond(keys_expected, keys_actual)
        else:
            missing = self._beyond(expected, actual)
        self._connection.unregister("given")
        if wrong := self._beyond(actual, expected):
            raise WrongResult(f"{query.name}: rows that should not be there, such as {wrong}")
        if missing:
            raise WrongResult(f"{query.name}: rows are missing, such as {missing}")

    def _beyond(self, one: str, other: str) -> list[tuple[Any, ...]]:
        """Returns some rows of one relation that the other one lacks."""
        return self._connection.execute(f"({one} EXCEPT ALL {other}) LIMIT {EXAMPLES_MAX}").fetchall()


def _table(names: list[str], rows: list[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table([pa.array(column) for column in columns], names=names)
