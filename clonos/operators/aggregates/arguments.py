"""Checks of the arguments of aggregates, made while the job is described."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.core.model.errors import JobError


class BadAggregate(JobError):
    """An aggregate got an argument that it cannot use."""

    aggregate: str
    argument: str
    given: str
    advice: str

    def __str__(self) -> str:
        return f"{self.aggregate}() gets {self.argument}={self.given}. {self.advice}"


def checked_of(aggregate: str, argument: str, of: Any) -> Any:
    """Returns a function of the record, the name of a field, or None.

    Raises: BadAggregate: it is something else.
    """
    if of is None or isinstance(of, str) or callable(of):
        return of
    advice = "Give it a function of the record, or the name of a field."
    if hasattr(of, "output_name"):  # an expression, which this package does not know
        advice += ' Compute a column in front of the step: with_columns(a=col("b") * 2).'
    raise BadAggregate(aggregate, argument, f"{of!r:.100}", advice)


def checked_call(aggregate: str, argument: str, function: Any) -> Callable[..., Any]:
    """Returns a function.

    Raises: BadAggregate: it is none.
    """
    if not callable(function):
        raise BadAggregate(aggregate, argument, f"{function!r:.100}", "Give it a function.")
    return function  # type: ignore[no-any-return]


def checked_int(aggregate: str, argument: str, number: Any, smallest: int, largest: int) -> int:
    """Returns an int within bounds.

    Raises: BadAggregate: it is no int, or beyond the bounds.
    """
    if type(number) is not int or not smallest <= number <= largest:
        advice = f"Give an int from {smallest} to {largest}."
        raise BadAggregate(aggregate, argument, f"{number!r:.100}", advice)
    return number


def checked_number(aggregate: str, argument: str, number: Any, smallest: float, largest: float) -> float:
    """Returns a number within bounds.

    Raises: BadAggregate: it is no number, or beyond the bounds.
    """
    if type(number) not in (int, float) or not smallest <= number <= largest:
        advice = f"Give a number from {smallest:.2g} to {largest:.2g}."
        raise BadAggregate(aggregate, argument, f"{number!r:.100}", advice)
    return float(number)
