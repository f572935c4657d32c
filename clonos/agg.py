"""Aggregates for ``aggregate(name=...)`` of streams, keyed streams and windows.

``of`` and ``by`` are a function of the record, or the name of a field: a key of a dict, an attribute of any other
record. A record for which they are None does not count. A missing field is an error of the record.

Example::

    from clonos.agg import count, quantile, sum_

    bids.key_by("auction").aggregate(total=sum_("price"), n=count(), p95=quantile("price", 0.95))

``from clonos.agg import *`` leaves out ``collect``, which would hide the sink of this name: write ``agg.collect``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from clonos.core.model.missing_names import explains_names
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.aggregates.arguments import checked_call, checked_int, checked_number, checked_of
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.custom import Custom
from clonos.operators.aggregates.distinct import ERROR_MAX as DISTINCT_ERROR_MAX
from clonos.operators.aggregates.distinct import ERROR_MIN as DISTINCT_ERROR_MIN
from clonos.operators.aggregates.distinct import ApproxDistinct, CountDistinct, Distinct
from clonos.operators.aggregates.numeric import Mean, Stddev, Sum, Variance
from clonos.operators.aggregates.quantiles import ERROR_MAX as QUANTILE_ERROR_MAX
from clonos.operators.aggregates.quantiles import ERROR_MIN as QUANTILE_ERROR_MIN
from clonos.operators.aggregates.quantiles import Quantile
from clonos.operators.aggregates.ranking import RANKED_MAX, BottomK, TopKRecords
from clonos.operators.aggregates.values import Collect, First, Last, Max, Min

__all__ = [
    "Aggregation",
    "aggregate",
    "approx_distinct",
    "bottom_k",
    "count",
    "count_distinct",
    "count_if",
    "distinct",
    "first",
    "last",
    "max_",
    "mean",
    "min_",
    "quantile",
    "stddev",
    "sum_",
    "top_k",
    "variance",
]

T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")
R = TypeVar("R")


@explains_calls
def count() -> Aggregation[Any, int]:
    """Counts the records."""
    return Count()


@explains_calls
def count_if(condition: Callable[[T], object]) -> Aggregation[T, int]:
    """Counts the records for which ``condition`` is true.

    Raises:
        BadAggregate: ``condition`` is not a function.
    """
    return Count(checked_call("count_if", "condition", condition))


@overload
def sum_(of: Callable[[T], U]) -> Aggregation[T, U]: ...


@overload
def sum_(of: str | None = None) -> Aggregation[Any, Any]: ...


@explains_calls
def sum_(of: Any = None) -> Aggregation[Any, Any]:
    """Sums numbers or timedeltas, without rounding until the result is read; 0 if there are none.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return Sum(checked_of("sum_", "of", of))


@overload
def min_(of: Callable[[T], U | None]) -> Aggregation[T, U | None]: ...


@overload
def min_(of: str | None = None) -> Aggregation[Any, Any]: ...


@explains_calls
def min_(of: Any = None) -> Aggregation[Any, Any]:
    """Finds the smallest value; None if there is none.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return Min(checked_of("min_", "of", of))


@overload
def max_(of: Callable[[T], U | None]) -> Aggregation[T, U | None]: ...


@overload
def max_(of: str | None = None) -> Aggregation[Any, Any]: ...


@explains_calls
def max_(of: Any = None) -> Aggregation[Any, Any]:
    """Finds the largest value; None if there is none.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return Max(checked_of("max_", "of", of))


@overload
def mean(of: Callable[[T], Any]) -> Aggregation[T, Any]: ...


@overload
def mean(of: str | None = None) -> Aggregation[Any, Any]: ...


@explains_calls
def mean(of: Any = None) -> Aggregation[Any, Any]:
    """Computes the arithmetic mean of numbers or timedeltas; None if there are none.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return Mean(checked_of("mean", "of", of))


@overload
def variance(of: Callable[[T], Any], *, ddof: int = 1) -> Aggregation[T, Any]: ...


@overload
def variance(of: str | None = None, *, ddof: int = 1) -> Aggregation[Any, Any]: ...


@explains_calls
def variance(of: Any = None, *, ddof: int = 1) -> Aggregation[Any, Any]:
    """Computes the variance of numbers, with the divisor n - ``ddof``; None of too few.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field, or ``ddof`` neither 0 nor 1.
    """
    return Variance(checked_of("variance", "of", of), checked_int("variance", "ddof", ddof, 0, 1))


@overload
def stddev(of: Callable[[T], Any], *, ddof: int = 1) -> Aggregation[T, Any]: ...


@overload
def stddev(of: str | None = None, *, ddof: int = 1) -> Aggregation[Any, Any]: ...


@explains_calls
def stddev(of: Any = None, *, ddof: int = 1) -> Aggregation[Any, Any]:
    """Computes the standard deviation of numbers, with the divisor n - ``ddof``; None of too few.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field, or ``ddof`` neither 0 nor 1.
    """
    return Stddev(checked_of("stddev", "of", of), checked_int("stddev", "ddof", ddof, 0, 1))


@overload
def first(of: Callable[[T], U | None]) -> Aggregation[T, U | None]: ...


@overload
def first(of: str | None = None) -> Aggregation[Any, Any]: ...


@explains_calls
def first(of: Any = None) -> Aggregation[Any, Any]:
    """Finds the value that arrived first, in windows that merge that of the first pane or session; None without one.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return First(checked_of("first", "of", of))


@overload
def last(of: Callable[[T], U | None]) -> Aggregation[T, U | None]: ...


@overload
def last(of: str | None = None) -> Aggregation[Any, Any]: ...


@explains_calls
def last(of: Any = None) -> Aggregation[Any, Any]:
    """Finds the value that arrived last, in windows that merge that of the last pane or session; None without one.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return Last(checked_of("last", "of", of))


@overload
def collect(of: Callable[[T], U | None]) -> Aggregation[T, list[U]]: ...


@overload
def collect(of: str | None = None) -> Aggregation[Any, list[Any]]: ...


@explains_calls
def collect(of: Any = None) -> Aggregation[Any, Any]:
    """Collects all values in a list, by arrival; in windows that merge by pane or session, then by arrival.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return Collect(checked_of("collect", "of", of))


@overload
def distinct(of: Callable[[T], U | None]) -> Aggregation[T, list[U]]: ...


@overload
def distinct(of: str | None = None) -> Aggregation[Any, list[Any]]: ...


@explains_calls
def distinct(of: Any = None) -> Aggregation[Any, Any]:
    """Collects the distinct values in a list, in the order of the first ones, which is that of ``collect``.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return Distinct(checked_of("distinct", "of", of))


@overload
def count_distinct(of: Callable[[T], object]) -> Aggregation[T, int]: ...


@overload
def count_distinct(of: str | None = None) -> Aggregation[Any, int]: ...


@explains_calls
def count_distinct(of: Any = None) -> Aggregation[Any, Any]:
    """Counts the distinct values exactly; the state has them all. ``approx_distinct`` needs less.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field.
    """
    return CountDistinct(checked_of("count_distinct", "of", of))


@overload
def approx_distinct(of: Callable[[T], object], *, error: float = 0.01) -> Aggregation[T, int]: ...


@overload
def approx_distinct(of: str | None = None, *, error: float = 0.01) -> Aggregation[Any, int]: ...


@explains_calls
def approx_distinct(of: Any = None, *, error: float = 0.01) -> Aggregation[Any, Any]:
    """Estimates the number of distinct values by HyperLogLog; up to 256 it is exact.

    ``error`` is the relative standard error. With 0.01 a key has a state of 16 KiB.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field,
            or ``error`` not from 0.0021 to 0.26.
    """
    return ApproxDistinct(
        checked_of("approx_distinct", "of", of),
        checked_number("approx_distinct", "error", error, DISTINCT_ERROR_MIN, DISTINCT_ERROR_MAX),
    )


@overload
def quantile(of: Callable[[T], Any], q: float, *, error: float = 0.01) -> Aggregation[T, float | None]: ...


@overload
def quantile(of: str | None, q: float, *, error: float = 0.01) -> Aggregation[Any, float | None]: ...


@explains_calls
def quantile(of: Any, q: float, *, error: float = 0.01) -> Aggregation[Any, float | None]:
    """Estimates the quantile ``q`` of numbers, such as 0.95; None if there are none. Up to 64 numbers it is exact.

    It is at most ``error``, relatively, from the number of rank floor(q * (n - 1)), counted from 0.

    Raises:
        BadAggregate: ``of`` is neither a function nor the name of a field, ``q`` not from 0 to 1, or ``error`` not from
            0.0001 to 0.25.
    """
    return Quantile(
        checked_of("quantile", "of", of),
        checked_number("quantile", "q", q, 0, 1),
        checked_number("quantile", "error", error, QUANTILE_ERROR_MIN, QUANTILE_ERROR_MAX),
    )


@overload
def top_k(k: int, by: Callable[[T], Any]) -> Aggregation[T, list[Any]]: ...


@overload
def top_k(k: int, by: str | None = None) -> Aggregation[Any, list[Any]]: ...


@explains_calls
def top_k(k: int, by: Any = None) -> Aggregation[Any, list[Any]]:
    """Finds the ``k`` records with the largest ``by``, the largest first; of equal ones the first by arrival.

    Raises:
        BadAggregate: ``k`` is not an int from 1 to 10,000, or ``by`` neither a function nor the name of a field.
    """
    return TopKRecords(checked_int("top_k", "k", k, 1, RANKED_MAX), checked_of("top_k", "by", by))


@overload
def bottom_k(k: int, by: Callable[[T], Any]) -> Aggregation[T, list[Any]]: ...


@overload
def bottom_k(k: int, by: str | None = None) -> Aggregation[Any, list[Any]]: ...


@explains_calls
def bottom_k(k: int, by: Any = None) -> Aggregation[Any, list[Any]]:
    """Finds the ``k`` records with the smallest ``by``, the smallest first; of equal ones the first by arrival.

    Raises:
        BadAggregate: ``k`` is not an int from 1 to 10,000, or ``by`` neither a function nor the name of a field.
    """
    return BottomK(checked_int("bottom_k", "k", k, 1, RANKED_MAX), checked_of("bottom_k", "by", by))


@overload
def aggregate(
    create: Callable[[], A], add: Callable[[A, T], A | None], merge: Callable[[A, A], A | None] | None = None
) -> Aggregation[T, A]: ...


@overload
def aggregate(
    create: Callable[[], A],
    add: Callable[[A, T], A | None],
    merge: Callable[[A, A], A | None] | None,
    result: Callable[[A], R],
) -> Aggregation[T, R]: ...


@explains_calls
def aggregate(
    create: Callable[[], Any],
    add: Callable[[Any, Any], Any],
    merge: Callable[[Any, Any], Any] | None = None,
    result: Callable[[Any], Any] | None = None,
) -> Aggregation[Any, Any]:
    """Makes an aggregate of your own functions; its accumulator is any value that state can store.

    Args:
        create: returns a new accumulator.
        add: called with (accumulator, record); returns the new accumulator, or None if it has changed it in place. It
            must not change it and then raise.
        merge: called with two accumulators, of which the first has the earlier records; returns as ``add`` does.
            Windows that merge need it, such as sessions.
        result: turns the accumulator into the result; None for the accumulator itself.

    Raises:
        BadAggregate: one of them is not a function.
    """
    return Custom(
        checked_call("aggregate", "create", create),
        checked_call("aggregate", "add", add),
        None if merge is None else checked_call("aggregate", "merge", merge),
        None if result is None else checked_call("aggregate", "result", result),
    )


explains_names(
    __name__,
    {
        "sum": "Use sum_.",
        "min": "Use min_.",
        "max": "Use max_.",
        "avg": "Use mean.",
        "average": "Use mean.",
        "std": "Use stddev.",
        "var": "Use variance.",
        "median": "Use quantile(field, 0.5).",
        "percentile": "Use quantile(field, 0.99).",
        "nunique": "Use count_distinct.",
        "collect_list": "Use collect.",
        "collect_set": "Use distinct.",
    },
)
