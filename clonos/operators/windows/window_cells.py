"""Cells: the state of one window of a key, as a list of plain values, so that a table of state can have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from clonos.core.model.watermark import END_OF_TIME_NS
from clonos.operators.state.state_spec import EACH, Numbers, keyed

Cell = list[Any]

WINDOWS: Final = keyed("windows", numbers=(Numbers("arrival", (1, EACH, 2)),))
"""Table with the cells of the open windows of each key."""

START, END, NUMBER, PENDING, ACCUMULATOR, LOOK, STATE, EVENT_TIMER, CLOCK_TIMER = range(9)
"""Places in a cell: start and end in nanoseconds since the Unix epoch; number of its first record by arrival; records
since its last result; accumulator; when the window is looked at next; state of the trigger; timers of the trigger, None
without."""


def new_cell(span: tuple[int, int], number: int, accumulator: Any) -> Cell:
    """Creates the cell of a window with its first record. It is looked at at the end of the input."""
    return [*span, number, 1, accumulator, END_OF_TIME_NS, None, None, None]


def merge_cells(
    first: Cell,
    second: Cell,
    merge: Callable[[Any, Any], Any],
    merged_state: Callable[[Any, Any], Any],
) -> None:
    """Merges the second cell into the first, whose span the caller sets."""
    first[ACCUMULATOR] = merge(first[ACCUMULATOR], second[ACCUMULATOR])
    first[NUMBER] = min(first[NUMBER], second[NUMBER])
    first[PENDING] += second[PENDING]
    first[STATE] = merged_state(first[STATE], second[STATE])
    for place in (EVENT_TIMER, CLOCK_TIMER):
        first[place] = min((each[place] for each in (first, second) if each[place] is not None), default=None)
