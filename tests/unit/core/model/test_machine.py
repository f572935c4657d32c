"""A machine's step is a row of its table, and a pair without a row is a bug."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from clonos.core.model.errors import InternalError
from clonos.core.model.machine import Machine


@dataclass(frozen=True)
class Counting:
    """How many marbles are in the bag."""

    marbles: int


@dataclass(frozen=True)
class Closed:
    """The bag is tied."""


@dataclass(frozen=True)
class Added:
    """Marbles were put in."""

    marbles: int


MACHINE: Machine[Counting | Closed, Added, Counting] = Machine(
    "bag", {(Counting, Added): lambda state, event: Counting(state.marbles + event.marbles)}
)


def test_a_step_is_what_the_row_of_the_state_and_the_event_returns() -> None:
    assert MACHINE.step(Counting(2), Added(3)) == Counting(5)


def test_a_pair_without_a_row_is_a_bug_that_names_the_machine_the_event_and_the_state() -> None:
    with pytest.raises(InternalError, match=r"the bag has no row for Added in state Closed: Added\(marbles=3\)"):
        MACHINE.step(Closed(), Added(3))
