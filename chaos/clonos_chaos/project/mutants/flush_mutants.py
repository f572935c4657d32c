"""Mutants of sinks with ``flush``: what of the rows that wait is in the snapshot."""

from __future__ import annotations

from typing import Any

from clonos.operators.operator import Scope
from clonos.operators.state.interval_timer import DUE
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.transforms.flush import WAITING, Flush
from clonos_chaos.project.mutants.mutation import Mutation, mutant


@mutant("5")
def flush_timers_are_not_in_the_snapshot(mutation: Mutation) -> None:
    """The snapshot holds the time of the next flush."""
    _forget(mutation, DUE)


@mutant("5")
def waiting_rows_are_not_in_the_snapshot(mutation: Mutation) -> None:
    """The snapshot holds the rows that wait in front of a sink."""
    _forget(mutation, WAITING)


def _forget(mutation: Mutation, spec: StateSpec) -> None:
    def opened(right: Any, self: Flush, scope: Scope) -> None:
        scope.state.table(spec).entries.clear()
        right(self, scope)

    mutation.wrap(Flush, "open", opened)
