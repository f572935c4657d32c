"""Jobs and sinks for the tests of crash tests: correct ones, and ones with a fault that crashes reveal."""

from __future__ import annotations

import random as standard
import time
from collections.abc import Callable
from typing import Any

from clonos import (
    Job,
    Tumbling,
    ValueState,
    WriterContext,
    WriterFenced,
    WriterIdentity,
    clock,
    collect,
    http,
    random,
    service,
    values,
)
from clonos.core.values import decode_rows, encode_rows
from clonos.operators.connector_contract import Registration

RECORDS = 30


def spread(function: Callable[[int], Any], sink: Any = None, **options: Any) -> Job:
    """Numbers go through a function in one task, and on to another one."""
    job = Job("spread", **options)
    job.source(values(range(RECORDS))).map(function).rebalance().map(lambda row: row).sink(sink or collect())
    return job


def lucky(number: int) -> tuple[int, float, float]:
    return number, random.random(), clock.time()


def secretly_lucky(number: int) -> tuple[int, float]:
    return number, standard.random()  # clonos: ok to be detected


def secretly_timed(number: int) -> tuple[int, int]:
    return number, time.time_ns()  # clonos: ok to be detected


def asking(number: int) -> tuple[int, int]:
    return number, http.get(f"http://answers/{number}").json()["answer"]


@service(effect=True)
def order(number: int, idempotency_key: str) -> str:
    """Must not be called in a test."""
    raise AssertionError("the network was reached")


def find_order(key: str, number: int, idempotency_key: str = "") -> str:
    """Must not be called in a test."""
    raise AssertionError("the network was reached")


@service(effect=True, reconcile=find_order)
def order_once(number: int, idempotency_key: str = "") -> str:
    """Must not be called in a test."""
    raise AssertionError("the network was reached")


@service
def rate(number: int) -> int:
    """Must not be called in a test."""
    raise AssertionError("the network was reached")


class Remembering:
    """Numbers what it sees per key, in declared state."""

    seen = ValueState[int]("seen", default=0)

    def process(self, number: int, context: Any) -> None:
        seen = context.state(self.seen)
        seen.value += 1
        context.emit((number, seen.value))


class Forgetting:
    """Counts in a list of the process, which is lost with it."""

    def open(self, context: Any) -> None:
        self.seen: list[int] = []

    def process(self, number: int, context: Any) -> None:
        self.seen.append(number)  # clonos: ok to be detected
        context.emit((number, len(self.seen)))


def counting(function: type) -> Job:
    """A job whose second task counts what it gets from the first."""
    job = Job("counting")
    job.source(values(range(RECORDS))).key_by(lambda _: 0).process(function).rebalance().map(tuple).sink(collect())
    return job


def everything() -> Job:
    """Two sources, random numbers, time, a call, state, a window, and two kinds of sinks."""
    job = Job("everything")
    rows = job.source(values(range(RECORDS)), name="first").map(lucky)
    others = job.source(values(range(RECORDS, 2 * RECORDS)), name="second").map(lucky)
    asked = rows.union(others).rebalance().map(lambda row: (*row, rate(row[0])))
    asked.key_by(lambda row: row[0] % 3).window(Tumbling("20ms")).count().sink(collect(), name="counted")
    asked.sink(Table(), name="asked", parallelism=1)
    return job


class Endless:
    """A source that has nothing just now, for ever."""

    def splits(self, parallelism: int) -> list[bytes]:
        return [b"the only one"]

    def reader(self) -> Endless:
        return self

    def open(self, split: bytes, mark: bytes | None) -> None:
        pass

    def read(self, records_max: int) -> list[int]:
        return []

    def mark(self) -> bytes:
        return b""

    def close(self) -> None:
        pass


# ------------------------------------------------------------------ sinks


class Table:
    """An immediate sink as it should be: fences, and keeps its rows in one atom with the next number."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.life = (0, 0)

    def immediate_writer(self) -> TableConnection:
        return TableConnection(self)


class TableConnection:
    """The table as one incarnation sees it."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.life = (0, 0)

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        table, self.life = self.table, (identity.generation, identity.incarnation)
        if self.life < table.life:
            raise WriterFenced
        superseded = len(table.rows) if self.life[0] > table.life[0] > 0 else None
        if superseded is not None:
            del table.rows[restored_number:]
        table.life = self.life
        return Registration(len(table.rows), superseded)

    def write(self, first_number: int, rows: list[Any]) -> int:
        if self.life != self.table.life:
            raise WriterFenced
        self.table.rows += rows[max(0, len(self.table.rows) - first_number) :]
        return len(self.table.rows)

    def close(self) -> None:
        pass


class WithdrawingTable(Table):
    """Says nothing of what it has taken back, for nothing of it is left."""

    can_roll_back = True

    def immediate_writer(self) -> TableConnection:
        return WithdrawingConnection(self)


class WithdrawingConnection(TableConnection):
    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        return Registration(super().register(identity, restored_number).next_number, None)


class LeavingTable(WithdrawingTable):
    """Says so too, and leaves what is to be made again."""

    def __init__(self) -> None:
        super().__init__()
        self.counting: list[Any] = []
        self.left: list[Any] = []

    def immediate_writer(self) -> TableConnection:
        return LeavingConnection(self)

    @property
    def rows(self) -> list[Any]:
        return self.left + self.counting

    @rows.setter
    def rows(self, rows: list[Any]) -> None:
        self.counting = rows


class LeavingConnection(WithdrawingConnection):
    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        table, life = self.table, (identity.generation, identity.incarnation)
        self.life = life
        if life[0] > table.life[0] > 0:
            table.left += table.counting[restored_number:]
            del table.counting[restored_number:]
        table.life = life
        return Registration(len(table.counting), None)

    def write(self, first_number: int, rows: list[Any]) -> int:
        if self.life != self.table.life:
            raise WriterFenced
        self.table.counting += rows[max(0, len(self.table.counting) - first_number) :]
        return len(self.table.counting)


class BoastingTable(Table):
    """Says that it withdraws, and when it is registered what it has left."""

    can_roll_back = True


class Stream:
    """Does not know which rows it has, but drops a row whose id it has."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}
        self.dropped: list[tuple[Any, Any]] = []  # (the row under this id, the row that was dropped)

    def immediate_writer(self) -> TableConnection:
        return StreamConnection(self)


class StreamConnection(TableConnection):
    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        self.id_space = identity.id_space
        return Registration(restored_number, None, knows_output=False)

    def write(self, first_number: int, rows: list[Any]) -> int:
        for number, row in enumerate(rows, first_number):
            name = f"{self.id_space}/{number}"
            if name in self.table.stored:
                self.table.dropped.append((self.table.stored[name], row))
            self.table.stored.setdefault(name, row)
        return first_number + len(rows)


class CarelessTable(Table):
    """Takes every row that comes, from whomever."""

    def immediate_writer(self) -> TableConnection:
        return CarelessConnection(self)


class CarelessConnection(TableConnection):
    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        return Registration(0, None)

    def write(self, first_number: int, rows: list[Any]) -> int:
        self.table.rows += rows
        return first_number + len(rows)


class Ledger:
    """A transactional sink as it should be: a checkpoint that is committed again changes nothing."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.checkpoint = -1

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        pass

    def writer(self) -> LedgerWriter:
        return LedgerWriter()

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        if checkpoint > self.checkpoint:
            self.checkpoint = checkpoint
            self.rows += [row for part in parts for row in decode_rows(part)]


class CarelessLedger(Ledger):
    """Adds up whatever is committed."""

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        self.rows += [row for part in parts for row in decode_rows(part)]


class LedgerWriter:
    def open(self, context: WriterContext) -> None:
        self.rows: list[Any] = []

    def write(self, rows: list[Any]) -> None:
        self.rows += rows

    def write_columns(self, batch: Any) -> None:
        self.rows += batch.to_pylist()

    def prepare(self, checkpoint: int) -> bytes | None:
        rows, self.rows = self.rows, []
        return encode_rows(rows) if rows else None

    def close(self) -> None:
        pass
