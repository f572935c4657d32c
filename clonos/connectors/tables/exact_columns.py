"""Which values a column of a table holds exactly. Databases convert others, some of them with a loss and no word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from clonos.connectors.tables.table_statements import NUMBER_COLUMN, TASK_COLUMN

OWN_COLUMNS = (TASK_COLUMN, NUMBER_COLUMN)


class NotStored(ValueError):
    """A column does not hold a value as it is. The text is half a sentence that says why, and what to do."""


Check: TypeAlias = Callable[[Any], None]
"""Check of one value; it raises ``NotStored``."""


class TableColumn(NamedTuple):
    """Column of a table as the database has it: its name, its type, and whether NULL is refused there."""

    name: str
    type_name: str
    is_required: bool = False


class ColumnChecks:
    """Checks of the values of a table whose columns are known."""

    def __init__(
        self,
        table: str,
        columns: Sequence[TableColumn],
        check_of: Callable[[str], Check | None],
        name_of: Callable[[str], str] = str,
    ) -> None:
        """Creates the checks.

        ``check_of``: from the type of a column to the check of its values, None for any. ``name_of``: makes names that
        are one to the database equal.
        """
        self._given = table, columns, check_of, name_of
        self._table, self._name_of = table, name_of
        self._columns = {name_of(column.name): column for column in columns}
        self._checks = {name_of(column.name): check_of(column.type_name) for column in columns}

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnChecks, self._given

    def column(self, name: str) -> TableColumn | None:
        """Returns a column of the table, None if there is none of this name."""
        return self._columns.get(self._name_of(name))

    def check(self, name: str, value: Any) -> None:
        """Checks a value as the user gave it.

        Raises: NotStored: the column is missing, or does not hold the value as it is.
        """
        column = self.column(name)
        if column is None:
            names = ", ".join(each.name for each in self._columns.values() if each.name not in OWN_COLUMNS)
            raise NotStored(f"has no column in the table {self._table}, which has {names}")
        if value is None:
            if column.is_required:
                raise NotStored("is None, and the table does not take NULL there")
            return
        check = self._checks[self._name_of(name)]
        if check is not None:
            check(value)
