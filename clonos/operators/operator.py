"""One step of a chain: takes batches, runs the user's code over them, passes batches on.

Rules: work is per batch, so that no Python function runs per record but the user's; an operator is a deterministic
function of the calls below, its state and the recorder; it belongs to one incarnation and is never used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

from clonos.core.ports.operator_chain import ChainContext
from clonos.operators.connector_contract import RecordBatch
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.user_errors import Guard


class Scope(NamedTuple):
    """What an operator is opened with."""

    context: ChainContext
    state: StateBackend


class DueTimer(NamedTuple):
    """A timer that shall fire: when it was due, and what its operator knows it by."""

    instant_ns: int
    token: Any


class Operator:
    """Base of all steps. ``out`` and ``guard`` are set when the chain is wired, before ``open``."""

    has_timers: ClassVar[bool] = False
    has_calls: ClassVar[bool] = False
    takes_columns: bool = False
    """A step before it that has both gives it columns, not rows."""

    out: Operator
    guard: Guard

    def open(self, scope: Scope) -> None:
        """Before the first batch, after the state is restored."""

    def rows(self, rows: list[Any]) -> None:
        """A batch of rows, never empty; of (key, value) where the input is keyed."""
        raise NotImplementedError

    def keys(self, keys: list[Any]) -> None:
        """A batch of a keyed input whose values are their own keys."""
        self.rows(list(zip(keys, keys, strict=True)))

    def columns(self, batch: RecordBatch) -> None:
        """A batch of columns: rows are dicts, unless the step works on columns."""
        self.rows(batch.to_pylist())

    def keyed_columns(self, batch: Any, column: str) -> None:
        """A batch of a keyed input as columns, the key among them."""
        self.rows(list(zip(batch.column(column).to_pylist(), batch.to_pylist(), strict=True)))

    def next_timer_ns(self) -> int | None:
        """When the earliest timer is due."""
        return None

    def due(self, until_ns: int | None) -> list[DueTimer]:
        """Timers due at an instant (None: all there are), in the order in which they fire."""
        return []

    def fire(self, due: Sequence[DueTimer]) -> None:
        """Fires those of ``due`` that are still registered."""

    def number_calls(self, first: int, step: int) -> None:
        """Its asynchronous calls are ``first``, ``first + step`` and so on; before ``open``."""

    def awaits_calls(self) -> bool:
        """Whether some of its asynchronous calls are open."""
        return False

    def complete(self, number: int, outcome: bytes) -> None:
        """The outcome of one of its asynchronous calls."""
        raise AssertionError(f"{type(self).__name__} makes no asynchronous calls")

    def prepare(self, checkpoint: int) -> None:
        """At a barrier, before the state is taken."""

    def close(self) -> None:
        """The incarnation ends. Called after ``open`` has begun, also when it failed."""


class Fork(Operator):
    """Several steps follow one: each gets every batch."""

    def __init__(self, targets: Sequence[Operator]) -> None:
        self._targets = tuple(targets)

    def rows(self, rows: list[Any]) -> None:
        for target in self._targets:
            target.rows(rows)

    def columns(self, batch: RecordBatch) -> None:
        for target in self._targets:
            target.columns(batch)


class Drop(Operator):
    """Nothing follows: results are not wanted."""

    def rows(self, rows: list[Any]) -> None:
        pass

    def columns(self, batch: RecordBatch) -> None:
        pass
