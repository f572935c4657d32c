"""Appended rows of a table: each carries its task and number, so that a restart can delete the rows that it repeats.

A table that the user created may lack these two columns: then no row can be withdrawn, and a warning says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from clonos.connectors.connector_errors import InvalidConnector, TableRefused, TableUnavailable
from clonos.connectors.tables.table_database import Database, TableDescription
from clonos.connectors.tables.table_statements import NUMBER_COLUMN, TASK_COLUMN
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import WriterIdentity

logger = logging.getLogger("clonos.slot")


class AppendedRows:
    """Rows that one registered incarnation appends."""

    def __init__(self, sink: TableDescription, database: Database, identity: WriterIdentity) -> None:
        self._sink, self._database = sink, database
        self._job_id = identity.job_id
        self._writer = f"{identity.job_id}/{identity.task_name}"
        self._others: list[str] = []  # tasks of other starts that have rows in the table
        self._has_numbers: bool | None = None  # None: the table does not exist yet or could not be inspected

    def prepare(self) -> None:
        """Inspects the table and whose rows it has, if it exists."""
        try:
            self._database.in_transaction("inspecting it", self._inspect_rows, attempts=1)
        except (TableRefused, TableUnavailable):
            return

    def warn(self, is_fresh: bool) -> None:
        """Logs a warning if the table lacks the two columns, or if a fresh start finds rows of another one in it."""
        if is_fresh and self._others:
            logger.warning(
                "the table %s has rows of an earlier start (%s), and this start appends its rows to them: delete them"
                " first if they must not be there twice, or replace rows by a key with upsert=",
                *(self._sink.table, self._others[0].partition("/")[0]),
            )
        if self._has_numbers is False:
            logger.warning(
                "the table %s has no columns %s and %s, so after a rollback or a resume the rows since the checkpoint"
                " may be repeated: %s",
                *(self._sink.table, TASK_COLUMN, NUMBER_COLUMN),
                f"to have them deleted first, add {TASK_COLUMN} VARCHAR(255) and {NUMBER_COLUMN} BIGINT, and an index",
            )

    def check(self, columns: tuple[str, ...]) -> None:
        """Checks the column names of the rows.

        Raises: InvalidConnector: a field has the name of one of the two columns.
        """
        if taken := {TASK_COLUMN, NUMBER_COLUMN}.intersection(map(str.lower, columns)):
            advice = "Rename it with a map before the sink: clonos uses a column of this name."
            raise InvalidConnector(self._sink.connector, f"the rows have a field {min(taken)}", advice)

    def on_created(self) -> None:
        """Inspects the table, which exists now, unless ``prepare`` has done so."""
        if self._has_numbers is None:
            self._database.in_transaction("inspecting it", self._inspect)

    def insert(self, first_number: int, rows: Sequence[Sequence[Any]], columns: tuple[str, ...]) -> None:
        """Inserts rows numbered from ``first_number``, within the caller's transaction."""
        assert self._has_numbers is not None, "a table is inspected before rows are written"
        if self._has_numbers:
            columns = (*columns, TASK_COLUMN, NUMBER_COLUMN)
            rows = [(*fields, self._writer, number) for number, fields in enumerate(rows, first_number)]
        self._database.insert_rows(self._sink.table, columns, rows)

    def insert_columns(self, first_number: int, batch: RecordBatch) -> None:
        """Inserts the rows of a batch of columns, numbered from ``first_number``, within the caller's transaction."""
        assert self._has_numbers is not None, "a table is inspected before rows are written"
        if self._has_numbers:
            import pyarrow

            count = batch.num_rows
            writer = pyarrow.repeat(self._writer, count)
            batch = batch.append_column(TASK_COLUMN, writer)
            batch = batch.append_column(NUMBER_COLUMN, pyarrow.array(range(first_number, first_number + count)))
        self._database.insert_columns(self._sink.table, batch)

    def withdraw(self, first_number: int, next_number: int) -> int | None:
        """Deletes the rows from ``first_number`` on.

        Returns the end of the missing range, None if no row is missing.
        """
        if self._has_numbers is None:
            self._inspect()
        if not self._has_numbers:
            return next_number
        mine = {"writer": self._writer, "first": first_number}
        dialect, table = self._sink.dialect, self._sink.table
        ((count, lowest),) = self._database.query(dialect.count_numbered(table), mine)
        self._database.execute(dialect.delete_numbered(table), mine)
        return end_of_missing(first_number, next_number, int(count), lowest)

    def forget(self, before_number: int) -> None:
        """Does nothing: a row keeps its number."""

    def _inspect(self) -> None:
        found = self._database.columns(self._sink.dialect.select_columns(self._sink.table))
        self._has_numbers = found >= {TASK_COLUMN, NUMBER_COLUMN}

    def _inspect_rows(self) -> None:
        self._inspect()
        if self._has_numbers:
            ends = self._sink.dialect.first_and_last_task(self._sink.table)
            found_tasks = [self._database.query(end, {})[0][0] for end in ends]
            own = f"{self._job_id}/"
            self._others = [task for task in found_tasks if task is not None and not task.startswith(own)]


def end_of_missing(first_number: int, next_number: int, count: int, lowest: Any) -> int | None:
    """Returns the end of the missing numbers in [first, next), None if none is missing.

    ``count`` of these numbers exist, and ``lowest`` is the lowest.
    """
    if count == next_number - first_number:
        return None
    is_at_the_end = count and count == next_number - int(lowest)
    return int(lowest) if is_at_the_end else next_number
