"""Connection of one sink task to its table: registration, numbered writes, and the withdrawal of rows after a rollback.

The rows, the check that no later incarnation has registered, and the number of the next row are one transaction.
Therefore each row is written once, whatever fails, and a fenced incarnation writes nothing. The first registration of a
new generation withdraws, in its own transaction, the rows that earlier generations wrote after the restored checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from clonos.connectors.connector_errors import RegistrationLost
from clonos.connectors.tables.exact_columns import ColumnChecks, TableColumn
from clonos.connectors.tables.table_appends import AppendedRows
from clonos.connectors.tables.table_database import Database, Query, RegistrationChanged, TableDescription
from clonos.connectors.tables.table_statements import SqlStatement
from clonos.connectors.tables.table_upserts import UpsertedRows
from clonos.core.model.errors import InternalError
from clonos.core.values.column_rows import rows_of_columns
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity

logger = logging.getLogger("clonos.slot")


class SinkDescription(TableDescription, Protocol):
    """Properties of a sink that its connection uses."""

    columns: tuple[str, ...] | None
    key_columns: tuple[str, ...]

    checks: ColumnChecks | None

    def columns_of(self, row: Any) -> tuple[str, ...]: ...

    def fields(
        self, row: Any, columns: tuple[str, ...], index: int, checks: ColumnChecks | None
    ) -> tuple[Any, ...]: ...

    def takes_columns(self, batch: RecordBatch, checks: ColumnChecks | None) -> bool: ...

    def known_columns(self, query: Query) -> Sequence[TableColumn]: ...

    def checks_of(self, columns: Sequence[TableColumn]) -> ColumnChecks | None: ...

    def types_of(self, columns: tuple[str, ...]) -> Mapping[str, str] | None: ...


class TableWriter:
    """Registered connection of one incarnation of a sink task."""

    def __init__(self, sink: SinkDescription) -> None:
        self._sink = sink
        self._dialect = sink.dialect
        self._database = Database(sink)
        self._identity: dict[str, Any] = {}
        self._rows: AppendedRows | UpsertedRows | None = None
        self._has_table = False
        self._checks: ColumnChecks | None = None
        self._is_fresh = False  # no earlier incarnation of the task has registered
        self._withdrawn = (0, 0)  # first and next number of the rows that this registration has withdrawn
        self._superseded_next: int | None = None

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """Registers this incarnation and fences earlier ones.

        Raises: WriterFenced: a later incarnation has registered. TableUnavailable, TableRefused: the database fails.
        """
        self._identity = {
            "job_id": identity.job_id,
            "task": identity.task_name,
            "generation": identity.generation,
            "incarnation": identity.incarnation,
        }
        self._superseded_next, self._withdrawn, self._has_table = None, (0, 0), False
        # Tables are created in separate transactions, because some databases commit at each DDL statement.
        self._database.in_transaction("registering", lambda: self._execute(self._dialect.create_registrations))
        keys = self._sink.key_columns
        rows = self._rows = (
            UpsertedRows(self._sink, self._database, identity, keys)
            if keys
            else AppendedRows(self._sink, self._database, identity)
        )
        rows.prepare()
        is_first, registration = self._database.in_transaction(
            "registering", lambda: self._register(rows, restored_number)
        )
        if is_first and identity.task_name.endswith("/0"):
            rows.warn(self._is_fresh)
        first, following = self._withdrawn
        if following > first:
            logger.warning(
                "rows %d to %d of %s were withdrawn from the table %s, because the job was rolled back",
                *(first, following - 1, identity.task_name, self._sink.table),
            )
        return registration

    def write(self, first_number: int, rows: list[Any]) -> int:
        """Writes rows numbered from ``first_number`` and advances the next number, in one transaction; returns it."""
        sink = self._sink
        columns = sink.columns
        if columns is None:
            columns = sink.columns_of(rows[0]) if rows else ()
        table_rows = self._prepared(columns, bool(rows))

        def insert(number: int, known: int) -> None:
            for names, some in _runs(rows[known:], sink):
                fields = [sink.fields(row, names, index, self._checks) for index, row in enumerate(some, known)]
                table_rows.insert(number, fields, names)
                number, known = number + len(some), known + len(some)

        return self._database.in_transaction("writing", lambda: self._write(first_number, len(rows), insert))

    def write_columns(self, first_number: int, batch: RecordBatch) -> int:
        """Writes the rows of a ``pyarrow.RecordBatch`` like ``write``, without an object per row where it can."""
        columns = self._sink.columns or tuple(batch.schema.names)
        if self._sink.key_columns or sorted(batch.schema.names) != sorted(columns) or not batch.num_rows:
            return self.write(first_number, rows_of_columns(batch))
        table_rows = self._prepared(columns, True)
        if not self._sink.takes_columns(batch, self._checks):
            return self.write(first_number, rows_of_columns(batch))
        assert isinstance(table_rows, AppendedRows), "there is no key"

        def insert(number: int, known: int) -> None:
            table_rows.insert_columns(number, batch.select(columns).slice(known))

        return self._database.in_transaction("writing", lambda: self._write(first_number, batch.num_rows, insert))

    def forget(self, before_number: int) -> None:
        """Deletes what is kept to withdraw rows below ``before_number``."""
        if self._rows is not None:
            self._rows.forget(before_number)

    def registrations(self, job_id: str) -> dict[str, tuple[int, int, int]]:
        """Returns (generation, incarnation, next number) of each registered task of a job."""
        self._database.in_transaction("registering", lambda: self._execute(self._dialect.create_registrations))
        rows = self._database.in_transaction(
            "reading", lambda: self._database.query(self._dialect.find_all, {"job_id": job_id})
        )
        return {
            task: (int(generation), int(incarnation), int(number)) for task, generation, incarnation, number in rows
        }

    def close(self) -> None:
        """Closes the connection; an open transaction is rolled back."""
        self._database.close()

    def _register(self, rows: AppendedRows | UpsertedRows, restored_number: int) -> tuple[bool, Registration]:
        """Registers within a transaction.

        Returns whether its generation registers for the first time, and the result.
        """
        registered = self._registered()
        self._is_fresh = registered is None
        if registered is None:
            self._execute(self._dialect.insert_registration, next_number=restored_number)
            return True, Registration(restored_number, None)
        generation, incarnation, next_number = registered
        mine = (self._identity["generation"], self._identity["incarnation"])
        if (generation, incarnation) > mine:
            raise self._fenced(registered)
        if (generation, incarnation) < mine:
            # From here on the earlier incarnation writes nothing; its last rows are counted below.
            replace = self._dialect.replace_registration
            if self._execute(replace, old_generation=generation, old_incarnation=incarnation) != 1:
                raise RegistrationChanged
            next_number = self._next_number()
        is_new_generation = mine[0] > generation
        if is_new_generation:
            # Remembered, because a retried commit may find this incarnation registered already.
            self._superseded_next = self._withdraw(rows, restored_number, next_number)
            if restored_number != next_number:
                self._execute(self._dialect.advance, next_number=next_number, new_number=restored_number)
            next_number = restored_number
        return is_new_generation, Registration(next_number, self._superseded_next)

    def _withdraw(self, rows: AppendedRows | UpsertedRows, first_number: int, next_number: int) -> int | None:
        """Withdraws the rows from ``first_number`` on. Returns the end of the rows that stay, None if none do."""
        if first_number >= next_number:
            return None
        superseded_next = rows.withdraw(first_number, next_number)
        self._withdrawn = (first_number if superseded_next is None else superseded_next, next_number)
        return superseded_next

    def _prepared(self, columns: tuple[str, ...], has_rows: bool) -> AppendedRows | UpsertedRows:
        """Checks the columns and creates the table if it is missing; returns who writes to it."""
        table_rows = self._rows
        assert table_rows is not None, "a connection is registered before rows are written"
        table_rows.check(columns)
        if not self._has_table and has_rows:
            if types := self._sink.types_of(columns):
                create = self._dialect.create_table(self._sink.table, types, self._sink.key_columns)
                self._database.in_transaction("creating", lambda: self._execute(create))
            table_rows.on_created()
            self._checks = self._sink.checks or self._database.in_transaction("inspecting it", self._known_checks)
            self._has_table = True
        return table_rows

    def _write(self, first_number: int, count: int, insert: Callable[[int, int], None]) -> int:
        """Writes ``count`` rows within a transaction. ``insert(number, known)`` inserts all but the first ``known``."""
        registered = self._registered()
        mine = (self._identity["generation"], self._identity["incarnation"])
        if registered is None:
            raise RegistrationLost(self._sink.table, str(self._identity["task"]))
        if registered[:2] != mine:
            raise self._fenced(registered)
        next_number = registered[2]
        if first_number > next_number:
            raise InternalError(
                f"{self._identity['task']} writes row {first_number} to the table {self._sink.table},"
                f" where row {next_number} is next. Please report it."
            )
        known = next_number - first_number
        if known >= count:
            return next_number
        new_number = first_number + count
        if self._execute(self._dialect.advance, next_number=next_number, new_number=new_number) != 1:
            raise RegistrationChanged
        insert(next_number, known)
        return new_number

    def _known_checks(self) -> ColumnChecks | None:
        return self._sink.checks_of(self._sink.known_columns(self._database.query))

    def _registered(self) -> tuple[int, int, int] | None:
        rows = self._database.query(self._dialect.find, self._identity)
        return tuple(map(int, rows[0])) if rows else None  # type: ignore[return-value]

    def _next_number(self) -> int:
        registered = self._registered()
        assert registered is not None, "it was changed in this transaction"
        return registered[2]

    def _execute(self, statement: SqlStatement, **values: Any) -> int:
        return self._database.execute(statement, self._identity | values)

    def _fenced(self, registered: tuple[int, int, int]) -> WriterFenced:
        return WriterFenced(
            f"{self._identity['task']} writes to the table {self._sink.table} as incarnation"
            f" {self._identity['incarnation']} of generation {self._identity['generation']}, but incarnation"
            f" {registered[1]} of generation {registered[0]} is registered",
            by=registered[:2],
        )


def _runs(rows: list[Any], sink: SinkDescription) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yields rows with the columns that they are written to, together while these are the same."""
    if sink.columns is not None:
        yield sink.columns, rows
        return
    for names, some in groupby(rows, sink.columns_of):
        yield names, list(some)
