"""Protocols of the kinds of records below aggregates over the whole input: what ``InputTotals`` asks of them.

The operator says when results leave. A kind has the accumulators of each key: one entry of a table (``object_totals``),
or a slot of a table in columns (``column_totals``). Without keys all records have the same one.
"""

from __future__ import annotations

from typing import Final, Protocol

from clonos.operators.kinds.kind import BatchT, GivenT, RecordKind
from clonos.operators.operator import Operator
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import StateSpec

BEFORE_SUFFIX: Final = "_before"


def name_before(name: str) -> str:
    """Returns the name of the result that one of this name replaces."""
    return name + BEFORE_SUFFIX


class KeyTotals(Protocol[GivenT]):
    """Accumulators of the aggregates of each key. Keys wait from a record on until their results have left."""

    @property
    def is_empty(self) -> bool:
        """Whether no key has an accumulator."""

    def add(self, batch: GivenT) -> None:
        """Adds records."""

    def pass_each(self, batch: GivenT) -> None:
        """Adds records, and passes on the results of its key after each, with its timestamp."""

    def pass_changes(self, batch: GivenT, has_before: bool) -> None:
        """Adds records, and passes on the results of each of their keys, by first arrival.

        ``has_before``: with the results that they replace, None for each of a new key.
        """

    def pass_every(self, batch: GivenT, count: int) -> None:
        """Adds records, and passes on the results of a key after each ``count`` of its records; the others wait."""

    def add_waiting(self, batch: GivenT) -> bool:
        """Adds records, whose keys wait. Returns whether any was added."""

    def pass_waiting(self) -> None:
        """Passes on the results of the keys that wait, in the order in which they began to."""

    def pass_all(self) -> None:
        """Passes on the results of all keys, by first arrival, and forgets them."""


class TotalKind(RecordKind[BatchT], Protocol[BatchT]):
    """Kind of the records of aggregates over the whole input."""

    def state_specs(self, is_paced: bool) -> tuple[StateSpec, ...]:
        """Returns the declarations of what ``totals`` opens."""

    def totals(self, operator: Operator, state: StepState, is_paced: bool) -> KeyTotals[BatchT]:
        """Returns the accumulators of a step. ``is_paced``: keys may wait."""
