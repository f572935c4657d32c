"""Rows that are appended to a table. Each bears its task and number, so that a restart can delete what it makes again.

A table that others have created may lack the two columns: then nothing can be withdrawn, and a warning says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from clonos.connectors.connector_errors import ConnectorMisused, TableRefused, TableUnavailable
from clonos.connectors.tables.table_database import Database, TableDescription
from clonos.connectors.tables.table_statements import NUMBER_COLUMN, TASK_COLUMN
from clonos.operators.connector_contract import OutsideIdentity

logger = logging.getLogger("clonos.slot")


class AppendedRows:
    """The rows that one registered incarnation appends."""

    def __init__(self, sink: TableDescription, database: Database, identity: OutsideIdentity) -> None:
        self._sink, self._database = sink, database
        self._writer = f"{identity.job_id}/{identity.task_name}"
        self._has_numbers: bool | None = None  # None: there is no table yet, or it could not be looked at

    def prepare(self) -> None:
        """Looks at the table, which may not exist yet."""
        try:
            self._database.in_transaction("looking at it", self._look, attempts=1)
        except (TableRefused, TableUnavailable):
            return

    def warn(self) -> None:
        """Warns when the table lacks the two columns."""
        if self._has_numbers is False:
            logger.warning(
                "the table %s has no columns %s and %s, so after a rollback or a resume its rows since the checkpoint"
                " may come again: %s",
                *(self._sink.table, TASK_COLUMN, NUMBER_COLUMN),
                f"to have them withdrawn, add {TASK_COLUMN} VARCHAR(255) and {NUMBER_COLUMN} BIGINT, and an index",
            )

    def check(self, columns: tuple[str, ...]) -> None:
        """ConnectorMisused: a field has the name of one of the two columns."""
        if taken := {TASK_COLUMN, NUMBER_COLUMN}.intersection(map(str.lower, columns)):
            advice = "Rename it with a map before the sink: this column is ours."
            raise ConnectorMisused(self._sink.connector, f"the rows have a field {min(taken)}", advice)

    def made(self) -> None:
        """Looks at the table, which exists by now, unless ``prepare`` has."""
        if self._has_numbers is None:
            self._database.in_transaction("looking at it", self._look)

    def insert(self, first_number: int, rows: Sequence[Sequence[Any]], columns: tuple[str, ...]) -> None:
        """Inserts rows numbered from ``first_number``, within the caller's transaction."""
        assert self._has_numbers is not None, "a table is looked at before it is written to"
        statement = self._sink.dialect.insert(self._sink.table, columns, self._has_numbers)
        places = [*(f"c{place}" for place in range(len(columns))), "writer", "number"]
        writer = self._writer
        values = [
            dict(zip(places, (*fields, writer, number), strict=True))
            for number, fields in enumerate(rows, first_number)
        ]
        self._database.execute_many(statement, values)

    def withdraw(self, first_number: int, next_number: int) -> int | None:
        """Deletes the rows from ``first_number`` on. Returns the end of the range that is missing, or None."""
        if self._has_numbers is None:
            self._look()
        if not self._has_numbers:
            return next_number
        mine = {"writer": self._writer, "first": first_number}
        dialect, table = self._sink.dialect, self._sink.table
        ((count, lowest),) = self._database.query(dialect.count_numbered(table), mine)
        self._database.execute(dialect.delete_numbered(table), mine)
        return end_of_missing(first_number, next_number, int(count), lowest)

    def forget(self, before_number: int) -> None:
        """Numbers stay in their rows."""

    def _look(self) -> None:
        found = self._database.columns(self._sink.dialect.look(self._sink.table))
        self._has_numbers = found >= {TASK_COLUMN, NUMBER_COLUMN}


def end_of_missing(first_number: int, next_number: int, count: int, lowest: Any) -> int | None:
    """End of the missing range among numbers [first, next), of which ``count`` were found, the lowest being ``lowest``.
    None: none is missing."""
    if count == next_number - first_number:
        return None
    is_at_the_end = count and count == next_number - int(lowest)
    return int(lowest) if is_at_the_end else next_number
