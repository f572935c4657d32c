"""The SQL of table sinks, for the parameter styles of PEP 249."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from clonos.connectors.faults import ConnectorMisused

OUTSIDE_TABLE = "clonos_outside"
PARAMSTYLES = ("qmark", "format", "numeric", "named", "pyformat")
_OUTSIDE_TYPES = {
    "job_id": "VARCHAR(255) NOT NULL",
    "task": "VARCHAR(255) NOT NULL",
    "generation": "BIGINT NOT NULL",
    "incarnation": "BIGINT NOT NULL",
    "next_number": "BIGINT NOT NULL",
}


class Statement:
    """SQL with places for parameters, written ``:name`` here, in whatever style the driver of the database wants."""

    def __init__(self, sql: str, paramstyle: str) -> None:
        # Names of tables and columns hold neither ":" nor "%", see Dialect.name.
        self._names = re.findall(r":(\w+)", sql)
        self._takes_names = paramstyle in ("named", "pyformat")
        places = count(1)

        def place(match: re.Match[str]) -> str:
            name = match[1]
            return {"qmark": "?", "format": "%s", "named": f":{name}", "pyformat": f"%({name})s"}.get(
                paramstyle, f":{next(places)}"
            )

        self.sql = re.sub(r":(\w+)", place, sql)

    def parameters(self, values: Mapping[str, Any]) -> Any:
        """What ``execute`` takes beside the SQL."""
        if self._takes_names:
            return {name: values[name] for name in self._names}
        return [values[name] for name in self._names]


class Dialect:
    """How one database spells things."""

    def __init__(self, connector: str, paramstyle: str, quote: str) -> None:
        if paramstyle not in PARAMSTYLES:
            raise ConnectorMisused(
                connector, f"the paramstyle {paramstyle!r} is unknown", f"PEP 249 has {', '.join(PARAMSTYLES)}."
            )
        self.connector = connector
        self.paramstyle = paramstyle
        self.quote = quote

    def name(self, name: str) -> str:
        """An identifier in quotes, so that it may be any word."""
        if not name or "\0" in name or ":" in name or "%" in name:
            raise ConnectorMisused(self.connector, f"{name!r} is no name in SQL", "Take another one.")
        return f"{self.quote}{name.replace(self.quote, self.quote * 2)}{self.quote}"

    def table(self, table: str) -> str:
        """A table, with its schema before a dot if it has one."""
        return ".".join(self.name(part) for part in table.split("."))

    def statement(self, sql: str) -> Statement:
        """SQL whose parameters are written ``:name``."""
        return Statement(sql, self.paramstyle)

    def create_table(self, table: str, columns: Mapping[str, str]) -> Statement:
        """``columns``: name to type; no type at all where the database needs none."""
        defined = ", ".join(f"{self.name(column)} {kind}".strip() for column, kind in columns.items())
        return Statement(f"CREATE TABLE IF NOT EXISTS {self.table(table)} ({defined})", "qmark")

    def insert(self, table: str, columns: Sequence[str]) -> Statement:
        """Parameters are ``c0``, ``c1``, ... in the order of the columns."""
        names = ", ".join(self.name(column) for column in columns)
        places = ", ".join(f":c{number}" for number in range(len(columns)))
        return self.statement(f"INSERT INTO {self.table(table)} ({names}) VALUES ({places})")

    @property
    def create_outside(self) -> Statement:
        """The table of registrations: who writes, and the number of the next output."""
        defined = ", ".join(f"{column} {kind}" for column, kind in _OUTSIDE_TYPES.items())
        sql = f"CREATE TABLE IF NOT EXISTS {OUTSIDE_TABLE} ({defined}, PRIMARY KEY (job_id, task))"
        return Statement(sql, "qmark")

    @property
    def find(self) -> Statement:
        """The registration of a task: generation, incarnation, next_number."""
        return self.statement(
            f"SELECT generation, incarnation, next_number FROM {OUTSIDE_TABLE} WHERE job_id = :job_id AND task = :task"
        )

    @property
    def find_all(self) -> Statement:
        """All registrations of a job: task, generation, incarnation, next_number."""
        return self.statement(
            f"SELECT task, generation, incarnation, next_number FROM {OUTSIDE_TABLE}"
            " WHERE job_id = :job_id ORDER BY task"
        )

    @property
    def enter(self) -> Statement:
        """The first registration of a task."""
        columns = ", ".join(_OUTSIDE_TYPES)
        places = ", ".join(f":{column}" for column in _OUTSIDE_TYPES)
        return self.statement(f"INSERT INTO {OUTSIDE_TABLE} ({columns}) VALUES ({places})")

    @property
    def take_over(self) -> Statement:
        """A later life of the task instead of an earlier one; changes one row, or none if another came first."""
        return self.statement(
            f"UPDATE {OUTSIDE_TABLE} SET generation = :generation, incarnation = :incarnation,"
            " next_number = :new_number"
            " WHERE job_id = :job_id AND task = :task"
            " AND generation = :old_generation AND incarnation = :old_incarnation AND next_number = :next_number"
        )

    @property
    def advance(self) -> Statement:
        """The next number, for the life that is registered; changes one row, or none if it is fenced."""
        return self.statement(
            f"UPDATE {OUTSIDE_TABLE} SET next_number = :new_number WHERE job_id = :job_id AND task = :task"
            " AND generation = :generation AND incarnation = :incarnation AND next_number = :next_number"
        )
