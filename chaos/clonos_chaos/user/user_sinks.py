"""Sinks of a user's job in the simulated world: output is recorded; sinks of the user's own run as well.

Rules: output to sinks of this library is only recorded, so that no test writes files. A sink of the user's own gets
what it would get in a real run, with kills and repeats. Its return values are compared with the recorded output, and so
is its content, if it has an attribute ``rows``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from clonos.core.values import decode_rows, decode_value, encode_rows, encode_value
from clonos.operators.connector_contract import (
    ImmediateSink,
    ImmediateWriter,
    KeyedSink,
    TransactionalSink,
    TransactionalWriter,
    WriterContext,
    WriterFenced,
    WriterIdentity,
    forget,
)
from clonos.operators.transforms.sink_rows import takes_keys_and_times
from clonos_chaos.sim.external_systems import JOB_ID, SimExternalSystem, SimFenced


def is_own(sink: object) -> bool:
    """Returns whether a sink is the user's own."""
    return type(sink).__module__.partition(".")[0] != "clonos"


class RecordedRows:
    """Transactional sink that records committed rows, and passes them to the user's own sink, if there is one."""

    def __init__(self, name: str, own: TransactionalSink | None) -> None:
        self.name = name
        self.own = own
        self.takes_keys_and_times = takes_keys_and_times(own)
        self.rows: list[Any] = []
        self._checkpoint = -1

    def __getstate__(self) -> dict[str, Any]:
        """Leaves committed rows out of a copy."""
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
    """Writer that collects rows until the barrier."""

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
    """Marker of an immediate sink; the world's external system takes its output, and the user's own, if any."""

    def __init__(self, name: str, own: ImmediateSink | None, keyed: KeyedSink | None = None) -> None:
        """``keyed``: the replaced sink, if its stream has to be keyed."""
        self.name = name
        self.own = own
        self.takes_keys_and_times = takes_keys_and_times(own)
        self.key_columns = () if keyed is None else keyed.key_columns
        self.columns = None if keyed is None else keyed.columns

    def immediate_writer(self) -> ImmediateWriter:
        raise AssertionError("the simulated slot writes to the world's external system")


class UserExternalSystem(SimExternalSystem):
    """Output of one task to an immediate sink of the user's own, compared with the world's model."""

    def __init__(self, task_name: str, sink: ImmediateSink) -> None:
        super().__init__(task_name)
        self._sink = sink
        self.withdraws = bool(getattr(sink, "can_roll_back", False))
        self._connections: dict[int, ImmediateWriter] = {}  # by incarnation

    def register(self, generation: int, incarnation: int, restored_number: int) -> tuple[int, int | None]:
        expected, superseded = super().register(generation, incarnation, restored_number)
        connection = self._connections[incarnation] = self._sink.immediate_writer()
        identity = WriterIdentity(JOB_ID, self.task_name, generation, incarnation)
        try:
            answer = connection.register(identity, restored_number)
        except WriterFenced:
            self._complain("register", "it refuses the latest incarnation")
        else:
            self.knows_output = answer.knows_output
            if not self.knows_output:  # it is told of all rows from the checkpoint on again
                expected = restored_number
            if answer.next_number != expected:
                self._complain(
                    "register", f"it returned the next number {answer.next_number}, but {expected} is expected"
                )
            if self.withdraws and answer.superseded_next is not None:
                left = f"it leaves output {expected} to {answer.superseded_next - 1}"
                self._complain("register", f"{left}, but can_roll_back says that it withdraws output")
        return expected, superseded

    def forget(self, incarnation: int, before_number: int) -> None:
        forget(self._connections.get(incarnation), before_number)

    def write(self, incarnation: int, first_number: int, count: int, payload: bytes) -> int:
        connection = self._connections.get(incarnation)
        is_fenced = incarnation != self.life[1]
        try:
            answer = None if connection is None else connection.write(first_number, decode_rows(payload))
        except WriterFenced:
            if not is_fenced:
                self._complain("write", "it refuses the latest incarnation")
            answer = None
        if is_fenced:
            if answer is not None and self.knows_output:
                self._complain("write", "it accepts rows of an incarnation that was replaced")
            raise SimFenced(self.life)
        expected = super().write(incarnation, first_number, count, payload)
        if not self.knows_output:
            expected = first_number + count
        if answer is not None and answer != expected:
            self._complain("write", f"it returned the next number {answer}, but {expected} is expected")
        return expected

    def close(self) -> None:
        """Closes all connections, because their processes have ended."""
        for connection in self._connections.values():
            connection.close()

    def _complain(self, method: str, what: str) -> None:
        text = f"the sink of {self.task_name}, {type(self._sink).__qualname__}: {method}(): {what}"
        if text not in self.complaints:
            self.complaints.append(text)


def identity_of(row: Any) -> bytes:
    """Returns bytes that are equal for equal rows."""
    return encode_value(row)


def differences(
    name: str, expected: Sequence[Any], found: Sequence[Any], identify: Callable[[Any], Any] = lambda row: row
) -> list[str]:
    """Returns complaints about lost and duplicated rows, with examples."""
    wanted = Counter(identity_of(identify(row)) for row in expected)
    counted = Counter(identity_of(identify(row)) for row in found)
    complaints = []
    for word, rest in (("lost", wanted - counted), ("duplicated or unexpected", counted - wanted)):
        if rest:
            examples = ", ".join(repr(decode_value(identity))[:200] for identity in list(rest)[:3])
            complaints.append(f"sink {name}: {rest.total()} rows are {word}, such as {examples}")
    return complaints


def held_wrongly(name: str, own: object, given: Sequence[Any]) -> list[str]:
    """Compares the content of a user's own sink with the rows that it was given."""
    held = getattr(own, "rows", None)
    if held is None:
        return []
    found = held() if callable(held) else held
    return [f"{text} (in {type(own).__qualname__}.rows)" for text in differences(name, given, list(found))]
