"""SQL of table sinks, for the parameter styles of PEP 249."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from clonos.connectors.connector_errors import InvalidConnector
from clonos.kernels.record_batch import RecordBatch

REGISTRATION_TABLE = "clonos_registrations"
PREVIOUS_TABLE = "clonos_previous"
TASK_COLUMN, NUMBER_COLUMN = "clonos_task", "clonos_number"
"""Columns that hold the task and the number of a row."""

PARAMSTYLES = ("qmark", "format", "numeric", "named", "pyformat")
_REGISTRATION_TYPES = {
    "job_id": "VARCHAR(255) NOT NULL",
    "task": "VARCHAR(255) NOT NULL",
    "generation": "BIGINT NOT NULL",
    "incarnation": "BIGINT NOT NULL",
    "next_number": "BIGINT NOT NULL",
}
PREVIOUS_TYPES = {
    "job_id": "VARCHAR(255) NOT NULL",
    "task": "VARCHAR(255) NOT NULL",
    "number": "BIGINT NOT NULL",
    "row_key": "TEXT NOT NULL",
    "previous": "TEXT",
    "written": "TEXT",
    "follows": "BIGINT",
}
_OF_TASK = "job_id = :job_id AND task = :task"
_NUMBERED = f" WHERE {TASK_COLUMN} = :writer AND {NUMBER_COLUMN} >= :first"


class SqlStatement:
    """SQL statement with parameters, written ``:name`` here and converted to the parameter style of the driver."""

    def __init__(self, sql: str, paramstyle: str) -> None:
        # Names of tables and columns contain neither ":" nor "%", see Dialect.name.
        self._names = re.findall(r":(\w+)", sql)
        self._takes_names = paramstyle in ("named", "pyformat")
        positions = count(1)

        def placeholder(match: re.Match[str]) -> str:
            name = match[1]
            return {"qmark": "?", "format": "%s", "named": f":{name}", "pyformat": f"%({name})s"}.get(
                paramstyle, f":{next(positions)}"
            )

        self.sql = re.sub(r":(\w+)", placeholder, sql)

    def parameters(self, values: Mapping[str, Any]) -> Any:
        """Returns the parameters for ``execute``."""
        if self._takes_names:
            return {name: values[name] for name in self._names}
        return [values[name] for name in self._names]


class Dialect:
    """SQL dialect of one database: its parameter style and its quotes."""

    keys_per_query = 50

    def __init__(self, connector: str, paramstyle: str, quote: str) -> None:
        if paramstyle not in PARAMSTYLES:
            raise InvalidConnector(
                connector, f"the paramstyle {paramstyle!r} is unknown", f"Give one of {', '.join(PARAMSTYLES)}."
            )
        self.connector = connector
        self.paramstyle = paramstyle
        self.quote = quote

    def name(self, name: str) -> str:
        """Quotes an identifier.

        Raises: InvalidConnector: it cannot be an identifier.
        """
        if not name or "\0" in name or ":" in name or "%" in name:
            raise InvalidConnector(self.connector, f"{name!r} is not a valid SQL identifier", "Choose another name.")
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def table(self, table: str) -> str:
        """Quotes a table name, with its schema before a dot if it has one."""
        return ".".join(self.name(part) for part in table.split("."))

    def statement(self, sql: str) -> SqlStatement:
        """Creates a statement from SQL with ``:name`` parameters."""
        return SqlStatement(sql, self.paramstyle)

    def create_table(self, table: str, columns: Mapping[str, str], key_columns: Sequence[str]) -> SqlStatement:
        """Creates the table.

        ``columns`` maps a name to a type, or to "" for none; without a key, rows have number columns.
        """
        defined = [f"{self.name(column)} {kind}".strip() for column, kind in columns.items()]
        if key_columns:
            defined.append(f"UNIQUE ({', '.join(map(self.name, key_columns))})")
        else:
            defined += [f"{TASK_COLUMN} VARCHAR(255)", f"{NUMBER_COLUMN} BIGINT"]
            defined.append(f"UNIQUE ({TASK_COLUMN}, {NUMBER_COLUMN})")
        return SqlStatement(f"CREATE TABLE IF NOT EXISTS {self.table(table)} ({', '.join(defined)})", "qmark")

    def select_columns(self, table: str) -> SqlStatement:
        """Selects no row, for the names of all columns."""
        return SqlStatement(f"SELECT * FROM {self.table(table)} WHERE 1 = 0", "qmark")

    def insert(self, table: str, columns: Sequence[str]) -> SqlStatement:
        """Inserts a row. Parameters: ``c0``, ``c1``, ... in order of the columns."""
        parameters = ", ".join(f":c{number}" for number in range(len(columns)))
        return self.statement(f"INSERT INTO {self.table(table)} ({self.names(columns)}) VALUES ({parameters})")

    def names(self, columns: Sequence[str]) -> str:
        """Returns the columns of an INSERT. Those for task and number were created without quotes."""
        own = (TASK_COLUMN, NUMBER_COLUMN)
        return ", ".join(column if column in own else self.name(column) for column in columns)

    def insert_rows(self, cursor: Any, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Inserts rows, each with a value per column, by a cursor of the driver."""
        statement = self.insert(table, columns)
        names = [f"c{number}" for number in range(len(columns))]
        values = (dict(zip(names, row, strict=True)) for row in rows)
        cursor.executemany(statement.sql, [statement.parameters(each) for each in values])

    def insert_columns(self, cursor: Any, table: str, batch: RecordBatch) -> None:
        """Inserts the rows of a batch of columns."""
        raise NotImplementedError

    # --- rows with numbers

    def count_numbered(self, table: str) -> SqlStatement:
        """Counts the rows of ``writer`` from ``first`` on, and selects their lowest number."""
        return self.statement(f"SELECT COUNT(*), MIN({NUMBER_COLUMN}) FROM {self.table(table)}{_NUMBERED}")

    def delete_numbered(self, table: str) -> SqlStatement:
        """Deletes the rows of ``writer`` from ``first`` on."""
        return self.statement(f"DELETE FROM {self.table(table)}{_NUMBERED}")

    def first_and_last_task(self, table: str) -> list[SqlStatement]:
        """Selects the least and the greatest task of the rows, each from the end of the index."""
        return [self.statement(f"SELECT {end}({TASK_COLUMN}) FROM {self.table(table)}") for end in ("MIN", "MAX")]

    # --- rows with keys

    def find_keys(self, table: str, columns: Sequence[str], key_columns: Sequence[str], count: int) -> SqlStatement:
        """Selects the rows of ``count`` keys, each after the index of its key.

        Parameters: ``k0_0``, ``k0_1``, ``k1_0``, ...
        """
        names = ", ".join(self.name(column) for column in columns)
        return self.statement(
            " UNION ALL ".join(
                f"SELECT {index} AS clonos_place, {names} FROM {self.table(table)}{self._where(key_columns, index)}"
                for index in range(count)
            )
        )

    def find_rows(
        self,
        query: Callable[[SqlStatement, Mapping[str, Any]], list[Any]],
        table: str,
        columns: Sequence[str],
        key_columns: Sequence[str],
        keys: Sequence[tuple[Any, ...]],
    ) -> list[Any]:
        """Returns the rows of keys, each after the index of its key."""
        values = {f"k{index}_{number}": value for index, key in enumerate(keys) for number, value in enumerate(key)}
        return query(self.find_keys(table, columns, key_columns, len(keys)), values)

    def insert_history(self, cursor: Any, entries: Sequence[Mapping[str, Any]]) -> None:
        """Inserts what rows have replaced, by a cursor of the driver."""
        statement = self.insert_previous
        cursor.executemany(statement.sql, [statement.parameters(each) for each in entries])

    def update_key(self, table: str, columns: Sequence[str], key_columns: Sequence[str]) -> SqlStatement:
        """Updates the row of a key. Parameters: ``c0``, ... and the key's ``k0_0``, ..."""
        changes = ", ".join(f"{self.name(column)} = :c{number}" for number, column in enumerate(columns))
        return self.statement(f"UPDATE {self.table(table)} SET {changes}{self._where(key_columns)}")

    def delete_key(self, table: str, key_columns: Sequence[str]) -> SqlStatement:
        """Deletes the row of a key. Parameters: ``k0_0``, ..."""
        return self.statement(f"DELETE FROM {self.table(table)}{self._where(key_columns)}")

    def _where(self, key_columns: Sequence[str], index: int = 0) -> str:
        parts = (f"{self.name(column)} = :k{index}_{number}" for number, column in enumerate(key_columns))
        return f" WHERE {' AND '.join(parts)}"

    @property
    def create_previous(self) -> SqlStatement:
        """Creates the table of previous rows."""
        defined = ", ".join(f"{column} {kind}" for column, kind in PREVIOUS_TYPES.items())
        sql = f"CREATE TABLE IF NOT EXISTS {PREVIOUS_TABLE} ({defined}, PRIMARY KEY (job_id, task, number))"
        return SqlStatement(sql, "qmark")

    @property
    def insert_previous(self) -> SqlStatement:
        """Inserts what row ``number`` has replaced."""
        columns = ", ".join(PREVIOUS_TYPES)
        parameters = ", ".join(f":{column}" for column in PREVIOUS_TYPES)
        return self.statement(f"INSERT INTO {PREVIOUS_TABLE} ({columns}) VALUES ({parameters})")

    @property
    def find_previous(self) -> SqlStatement:
        """Selects what the rows of a task from ``first`` on have replaced, in order."""
        return self.statement(
            f"SELECT number, row_key, previous, written, follows FROM {PREVIOUS_TABLE}"
            f" WHERE {_OF_TASK} AND number >= :first ORDER BY number"
        )

    @property
    def update_previous(self) -> SqlStatement:
        """Updates the row that ``number`` has written, after later rows were withdrawn."""
        return self.statement(f"UPDATE {PREVIOUS_TABLE} SET written = :written WHERE {_OF_TASK} AND number = :number")

    @property
    def delete_previous(self) -> SqlStatement:
        """Deletes the previous rows of a task from ``first`` on."""
        return self.statement(f"DELETE FROM {PREVIOUS_TABLE} WHERE {_OF_TASK} AND number >= :first")

    @property
    def forget_previous(self) -> SqlStatement:
        """Deletes the previous rows of a task below ``before``, if this incarnation is registered."""
        return self.statement(
            f"DELETE FROM {PREVIOUS_TABLE} WHERE {_OF_TASK} AND number < :before AND EXISTS"
            f" (SELECT 1 FROM {REGISTRATION_TABLE} WHERE {_OF_TASK}"
            " AND generation = :generation AND incarnation = :incarnation)"
        )

    # --- registrations

    @property
    def create_registrations(self) -> SqlStatement:
        """Creates the table of registrations: the registered incarnation and the next number of each task."""
        defined = ", ".join(f"{column} {kind}" for column, kind in _REGISTRATION_TYPES.items())
        sql = f"CREATE TABLE IF NOT EXISTS {REGISTRATION_TABLE} ({defined}, PRIMARY KEY (job_id, task))"
        return SqlStatement(sql, "qmark")

    @property
    def find(self) -> SqlStatement:
        """Selects the registration of a task: generation, incarnation, next_number."""
        return self.statement(f"SELECT generation, incarnation, next_number FROM {REGISTRATION_TABLE} WHERE {_OF_TASK}")

    @property
    def find_all(self) -> SqlStatement:
        """Selects all registrations of a job: task, generation, incarnation, next_number."""
        return self.statement(
            f"SELECT task, generation, incarnation, next_number FROM {REGISTRATION_TABLE}"
            " WHERE job_id = :job_id ORDER BY task"
        )

    @property
    def insert_registration(self) -> SqlStatement:
        """Inserts the first registration of a task."""
        columns = ", ".join(_REGISTRATION_TYPES)
        parameters = ", ".join(f":{column}" for column in _REGISTRATION_TYPES)
        return self.statement(f"INSERT INTO {REGISTRATION_TABLE} ({columns}) VALUES ({parameters})")

    @property
    def replace_registration(self) -> SqlStatement:
        """Replaces the registration of an earlier incarnation; changes no row if another connection came first."""
        return self.statement(
            f"UPDATE {REGISTRATION_TABLE} SET generation = :generation, incarnation = :incarnation"
            f" WHERE {_OF_TASK} AND generation = :old_generation AND incarnation = :old_incarnation"
        )

    @property
    def advance(self) -> SqlStatement:
        """Advances the next number; changes no row if the incarnation is fenced."""
        return self.statement(
            f"UPDATE {REGISTRATION_TABLE} SET next_number = :new_number WHERE {_OF_TASK}"
            " AND generation = :generation AND incarnation = :incarnation AND next_number = :next_number"
        )
