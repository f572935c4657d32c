"""Results that do not fit the type of their column, such as a sum of ints beyond 64 bits: each is an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy

from clonos.operators.columnar.column_aggregates import ColumnAggregate, Slots, State
from clonos.operators.row_errors import ERRORS_ADVICE, RecordError

FLOATS: Final = ("double", "float", "halffloat")


class ResultTooLarge(RecordError):
    """A result does not fit the type of its column. The state is exact, so later results may fit again."""

    name: str
    type_name: str

    def __str__(self) -> str:
        return f"{self.set_aside_text()}.{ERRORS_ADVICE}"

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        is_float = self.type_name in FLOATS
        advice = "divide what it is computed of" if is_float else "cast what it is computed of to float or decimal"
        return (
            f"the result {self.name!r} is too large for its column, which is of the type {self.type_name}: {advice} in"
            " front of the step"
        )


def fitting_results(
    aggregates: Sequence[ColumnAggregate], state: State, slots: Slots, refuse: Callable[[int, Exception], None]
) -> Any | None:
    """Returns which slots have results that fit, as a mask; None if all do.

    ``refuse`` is called with the place of each other one among ``slots``, and the error.
    """
    fits = None
    for each in aggregates:
        misfits = each.misfits(state, slots)
        if misfits is None or not misfits.any():
            continue
        error = ResultTooLarge(each.name, str(each.results(state, slots[:0]).type))
        fits = numpy.ones(len(slots), numpy.bool_) if fits is None else fits
        for place in numpy.flatnonzero(misfits & fits).tolist():
            refuse(place, error)
        fits &= ~misfits
    return fits
