"""Sinks of a user's job in the simulated world: what reaches them is kept here; a sink of the user's own runs beside.

Rules: what reaches sinks of this library is only kept, so that no test writes files. A sink of the user's own gets what
it would get in a real run, kills and repeats included. What it says is compared with what was given to it, and so is
what it holds, where it tells that by an attribute ``rows``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from clonos.core.values import decode_rows, decode_value, encode_rows, encode_value
from clonos.operators.connector_contract import (
    ImmediateSink,
    KeyedSink,
    Outside,
    OutsideFenced,
    OutsideIdentity,
    TransactionalSink,
    TransactionalWriter,
    WriterContext,
    forget,
)
from clonos_chaos.sim.external_systems import JOB_ID, SimExternalSystem, SimFenced


def is_own(sink: object) -> bool:
    """Whether it is a sink of the user's own."""
    return type(sink).__module__.partition(".")[0] != "clonos"


class RecordedRows:
    """A transactional sink whose committed rows are kept, and given to a sink of the user's own, if there is one."""

    def __init__(self, name: str, own: TransactionalSink | None) -> None:
        self.name = name
        self.own = own
        self.rows: list[Any] = []
        self._checkpoint = -1

    def __getstate__(self) -> dict[str, Any]:
        """A copy travels without what was committed."""
        return {**vars(self), "rows": []}

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        self.rows, self._checkpoint = [], -1
        if self.own is not None:
            self.own.prepare_output(job_id, resume, overwrite)

    def writer(self) -> RecordedRowsWriter:
        return RecordedRowsWriter(None if self.own is None else self.own.writer())

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        given = [cast("tuple[bytes, bytes | None]", decode_value(part)) for part in parts]
        if self.own is not None:
            self.own.commit(job_id, checkpoint, [part for _, part in given if part is not None])
        if checkpoint > self._checkpoint:
            self._checkpoint = checkpoint
            for rows, _ in given:
                self.rows += decode_rows(rows)


class RecordedRowsWriter:
    """Keeps rows until the barrier."""

    def __init__(self, own: TransactionalWriter | None) -> None:
        self._own = own
        self._rows: list[Any] = []

    def open(self, context: WriterContext) -> None:
        if self._own is not None:
            self._own.open(context)

    def write(self, rows: list[Any]) -> None:
        self._rows += rows
        if self._own is not None:
            self._own.write(rows)

    def write_columns(self, batch: Any) -> None:
        self._rows += batch.to_pylist()
        if self._own is not None:
            self._own.write_columns(batch)

    def prepare(self, checkpoint: int) -> bytes | None:
        rows, self._rows = self._rows, []
        part = None if self._own is None else self._own.prepare(checkpoint)
        return encode_value((encode_rows(rows), part)) if rows or part is not None else None

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


class RecordedExternal:
    """Marks a sink as immediate; an outside of the world stands behind it, and that of the user's own, if any."""

    def __init__(self, name: str, own: ImmediateSink | None, keyed: KeyedSink | None = None) -> None:
        """``keyed``: the sink that it stands for, if its stream has to be keyed."""
        self.name = name
        self.own = own
        self.key_columns = () if keyed is None else keyed.key_columns
        self.columns = None if keyed is None else keyed.columns

    def outside(self) -> Outside:
        raise AssertionError("the simulated slot writes to the world's outside")


class UserExternalSystem(SimExternalSystem):
    """One task's output to an immediate sink of the user's own, beside what the world knows of it."""

    def __init__(self, task_name: str, sink: ImmediateSink) -> None:
        super().__init__(task_name)
        self._sink = sink
        self.withdraws = bool(getattr(sink, "is_withdrawing", False))
        self._connections: dict[int, Outside] = {}  # by incarnation

    def register(self, generation: int, incarnation: int, restored_number: int) -> tuple[int, int | None]:
        expected, superseded = super().register(generation, incarnation, restored_number)
        connection = self._connections[incarnation] = self._sink.outside()
        identity = OutsideIdentity(JOB_ID, self.task_name, generation, incarnation)
        try:
            answer = connection.register(identity, restored_number)
        except OutsideFenced:
            self._complain("register", "it refuses the latest incarnation")
        else:
            if answer.next_number != expected:
                self._complain("register", f"it says that {answer.next_number} comes next, and it was given {expected}")
            if self.withdraws and answer.superseded_next is not None:
                left = f"it leaves output {expected} to {answer.superseded_next - 1}"
                self._complain("register", f"{left}, and says by is_withdrawing that it withdraws")
        return expected, superseded

    def forget(self, incarnation: int, before_number: int) -> None:
        forget(self._connections.get(incarnation), before_number)

    def write(self, incarnation: int, first_number: int, count: int, payload: bytes) -> int:
        connection = self._connections.get(incarnation)
        is_fenced = incarnation != self.life[1]
        try:
            answer = None if connection is None else connection.write(first_number, decode_rows(payload))
        except OutsideFenced:
            if not is_fenced:
                self._complain("write", "it refuses the latest incarnation")
            answer = None
        if is_fenced:
            if answer is not None:
                self._complain("write", "it takes rows of an incarnation that has been replaced")
            raise SimFenced(self.life)
        expected = super().write(incarnation, first_number, count, payload)
        if answer is not None and answer != expected:
            self._complain("write", f"it says that {answer} comes next, and it was given all before {expected}")
        return expected

    def close(self) -> None:
        """Closes all connections: the processes that had them have ended."""
        for connection in self._connections.values():
            connection.close()

    def _complain(self, method: str, what: str) -> None:
        text = f"the sink behind {self.task_name}, {type(self._sink).__qualname__}: {method}(): {what}"
        if text not in self.complaints:
            self.complaints.append(text)


def identity_of(row: Any) -> bytes:
    """Equal for equal rows, whatever they are."""
    return encode_value(row)


def differences(
    name: str, expected: Sequence[Any], found: Sequence[Any], identify: Callable[[Any], Any] = lambda row: row
) -> list[str]:
    """What is lost and what is there too often, with an example each."""
    wanted = Counter(identity_of(identify(row)) for row in expected)
    counted = Counter(identity_of(identify(row)) for row in found)
    complaints = []
    for word, rest in (("lost", wanted - counted), ("there too often or not to be there", counted - wanted)):
        if rest:
            examples = ", ".join(repr(decode_value(identity))[:200] for identity in list(rest)[:3])
            complaints.append(f"sink {name}: {rest.total()} rows are {word}, such as {examples}")
    return complaints


def held_wrongly(name: str, own: object, given: Sequence[Any]) -> list[str]:
    """Compares what a sink of the user's own holds with what it was given."""
    held = getattr(own, "rows", None)
    if held is None:
        return []
    found = held() if callable(held) else held
    return [f"{text} (of what {type(own).__qualname__}.rows holds)" for text in differences(name, given, list(found))]
