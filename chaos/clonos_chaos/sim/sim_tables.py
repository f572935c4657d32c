"""Simulated tables: the real table sinks on a database in memory, compared with what they must hold.

``SimExternalSystem`` is the model. In a world with tables a rollback leaves no output after: rows are withdrawn before
anything new is written, and no alarm is due.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any

from clonos.connectors import dbapi, sqlite
from clonos.connectors.tables.table_sink import TableSink
from clonos.connectors.tables.table_writer import TableWriter
from clonos.core.model.ids import TaskId
from clonos.core.model.plan import Plan
from clonos.core.values import decode_rows, decode_value, encode_value
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity
from clonos_chaos.sim.external_systems import JOB_ID, SimExternalSystem, SimFenced, SimStream

TABLE, COLUMNS = "output", {"place": "TEXT", "row": "BLOB"}
PLACES = 5
"""Keys of each task."""


FORGETTING_SHARE = 0.5
"""Share of the systems without withdrawal that do not know what they have."""


class ExternalKind(StrEnum):
    """External system that the immediate sinks of a world write to."""

    ALARMING = "alarming"  # cannot withdraw rows
    FORGETTING = "forgetting"  # recognises a row by its id, and knows no more
    SQLITE = "sqlite"
    DBAPI = "dbapi"
    SQLITE_UPSERT = "sqlite upsert"
    DBAPI_UPSERT = "dbapi upsert"


def kind_of(seed: int, job: object | None) -> ExternalKind:
    """Returns the kind that a given job asks for; without a job, draws one from a separate random stream."""
    if job is not None:
        return getattr(job, "external_kind", ExternalKind.ALARMING)
    kind = Random(f"outsides of {seed}").choice([kind for kind in ExternalKind if kind is not ExternalKind.FORGETTING])
    is_forgetting = kind is ExternalKind.ALARMING and Random(f"memory of {seed}").random() < FORGETTING_SHARE
    return ExternalKind.FORGETTING if is_forgetting else kind


class SharedConnection(sqlite3.Connection):
    """Connection shared by all tasks; each finishes its transaction before the next begins. Lives until ``end``."""

    def close(self) -> None:
        if self.in_transaction:
            self.rollback()

    def end(self) -> None:
        super().close()


class Memory:
    """Database in memory, created at its first use."""

    def __init__(self, isolation: Any) -> None:
        self._isolation = isolation
        self._connection: SharedConnection | None = None

    def connect(self) -> SharedConnection:
        if self._connection is None:
            self._connection = sqlite3.connect(":memory:", isolation_level=self._isolation, factory=SharedConnection)
        return self._connection

    def end(self) -> None:
        if self._connection is not None:
            self._connection.end()


class ExternalSystems(dict[TaskId, SimExternalSystem]):
    """External systems of a job's immediate sinks, by task of its plan. ``every``: also of tasks that do not run."""

    def __init__(self, plan: Plan, kind: ExternalKind) -> None:
        super().__init__()
        self._memory = Memory("DEFERRED" if kind in (ExternalKind.DBAPI, ExternalKind.DBAPI_UPSERT) else None)
        self._make: Callable[[str], SimExternalSystem] = SimExternalSystem
        if kind is ExternalKind.FORGETTING:
            self._make = SimStream
        elif kind is not ExternalKind.ALARMING:
            self._make = partial(SimTable, sink=_sink(kind, self._memory), memory=self._memory)
        self._idle: list[SimExternalSystem] = []  # of tasks that the plan does not have any more
        self.renumber(plan)

    @property
    def every(self) -> list[SimExternalSystem]:
        """The external systems of all tasks that have ever run."""
        return [*self.values(), *self._idle]

    def named(self, task_name: str) -> SimExternalSystem:
        """Returns the external system of a task by its name, whatever its number is."""
        return next(external for external in self.every if external.task_name == task_name)

    def renumber(self, plan: Plan) -> None:
        """Gives each system the number that its task has in another plan, and adds those of new tasks."""
        known = {external.task_name: external for external in self.every}
        self.clear()
        for task in plan.tasks:
            if any(channel.receiver is None for channel in plan.outputs[task]):
                name = plan.task_name(task)
                self[task] = known.pop(name) if name in known else self._make(name)
        self._idle = list(known.values())

    def close(self) -> None:
        """Closes the database at the end of the world."""
        self._memory.end()


def _sink(kind: ExternalKind, memory: Memory) -> TableSink:
    key = "place" if kind in (ExternalKind.SQLITE_UPSERT, ExternalKind.DBAPI_UPSERT) else None
    if kind in (ExternalKind.DBAPI, ExternalKind.DBAPI_UPSERT):
        return dbapi(memory.connect, TABLE, COLUMNS, upsert=key, paramstyle="named")
    sink = sqlite(":memory:", TABLE, COLUMNS, upsert=key)
    sink.connect = memory.connect
    return sink


class SimTable(SimExternalSystem):
    """Rows of one task in a table that all tasks of the job share."""

    withdraws = True

    def __init__(self, task_name: str, sink: TableSink, memory: Memory) -> None:
        super().__init__(task_name)
        self._sink, self._memory = sink, memory
        self._connections: dict[int, TableWriter] = {}  # by incarnation
        self._forgotten = 0  # rows below this number are never withdrawn

    def register(self, generation: int, incarnation: int, restored_number: int) -> tuple[int, int | None]:
        before = self.next_number
        expected, _ = super().register(generation, incarnation, restored_number)
        self.withdrawn += max(0, before - expected)
        connection = self._connections[incarnation] = self._sink.immediate_writer()
        with _quiet():
            answer = connection.register(
                WriterIdentity(JOB_ID, self.task_name, generation, incarnation), restored_number
            )
        if answer != Registration(expected, None):
            self._complain(f"answers {answer} to the registration from {restored_number}, not from {expected}")
        self.compare()
        return answer.next_number, answer.superseded_next

    def write(self, incarnation: int, first_number: int, count: int, payload: bytes) -> int:
        rows = [self._fields(row) for row in decode_rows(payload)]
        connection = self._connections.get(incarnation)
        answer: int | None = None
        try:
            answer = None if connection is None else connection.write(first_number, rows)
        except WriterFenced:
            pass
        try:
            expected = super().write(incarnation, first_number, count, payload)
        except SimFenced:
            if answer is not None:
                self._complain(f"takes output of incarnation {incarnation:x}, which has been replaced")
            raise
        if answer != expected:
            self._complain(f"answers {answer} to output {first_number}, not {expected}")
        return expected

    def forget(self, incarnation: int, before_number: int) -> None:
        connection = self._connections.get(incarnation)
        if connection is not None:
            connection.forget(before_number)
            if incarnation == self.life[1]:
                self._forgotten = max(self._forgotten, before_number)

    def compare(self) -> None:
        """Compares the table with the model: its rows, and the previous values stored for withdrawals."""
        if not self.rows and not self._has_table():
            return
        named = {"task": self.task_name, "writer": f"{JOB_ID}/{self.task_name}", "prefix": f"{self.task_name} %"}
        rows = [self._fields(row) for row in self.rows]
        if self._sink.key_columns:
            found = self._found("SELECT place, row FROM output WHERE place LIKE :prefix", named)
            expected = list({place: (place, row) for place, row in rows}.values())
            is_right = sorted(found) == sorted(expected)
            previous_numbers = self._found(
                "SELECT number FROM clonos_previous WHERE task = :task ORDER BY number", named
            )
            if [number for (number,) in previous_numbers] != list(range(self._forgotten, self.next_number)):
                self._complain(f"keeps {previous_numbers} for withdrawals, not {self._forgotten} to {self.next_number}")
        else:
            found = self._found(
                "SELECT place, row FROM output WHERE clonos_task = :writer ORDER BY clonos_number", named
            )
            is_right = found == rows
        if not is_right:
            offsets = sorted(_offset_of(row) for _, row in found), sorted(_offset_of(row) for _, row in rows)
            self._complain(f"holds offsets {offsets[0]}, and those that count are {offsets[1]}")

    def _fields(self, row: Any) -> tuple[str, bytes]:
        return f"{self.task_name} {row[0] % PLACES}", encode_value(row)

    def _has_table(self) -> bool:
        return bool(self._found("SELECT 1 FROM sqlite_master WHERE name = 'output'", {}))

    def _found(self, sql: str, named: dict[str, Any]) -> list[Any]:
        return self._memory.connect().execute(sql, named).fetchall()

    def _complain(self, what: str) -> None:
        self.complaints.append(f"the table of {self.task_name} {what}")


def _offset_of(row: bytes) -> int:
    return int(decode_value(row)[0])  # type: ignore[index]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the slot's log messages about withdrawals, which the world expects."""
    logger = logging.getLogger("clonos.slot")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
