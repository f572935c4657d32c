"""Methods of a stream that choose among its records: sample, peek, branches, duplicates, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from clonos.api.checks.function_checks import check_function
from clonos.api.columns.forms import refuse_columns
from clonos.api.common import Common, CommonWithEffects, StandbyMode
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import StepInput
from clonos.api.themes import Theme
from clonos.operators.facts import plain
from clonos.operators.steps import stateless
from clonos.operators.transforms.deduplicate import Keep
from clonos.operators.transforms.limit import Limit
from clonos.operators.transforms.record_steps import (
    Branch,
    Iterated,
    OneBranch,
    branch_tags,
    peek,
    sample,
)

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")


class Choosing(Theme, Generic[T]):
    """Base of ``Stream`` with the methods that choose among records."""

    def distinct(self, key: Callable[[T], object] | str | None = None, **common: Unpack[Common]) -> Stream[T]:
        """Keeps the first record of each key, for ever: the state grows with the number of keys.

        ``key`` is a function of the record or the name of a field; None for the record itself. Use
        ``deduplicate(within=...)`` to forget keys again.
        """
        if key is None:
            refuse_columns(self._graph, self._inputs, common.get("name") or "distinct", 'distinct("id")')
        keyed = self._stream(self._inputs).key_by(_WholeRecord("distinct", "key") if key is None else key)
        return keyed._deduplicated("distinct", None, common)

    def deduplicate(
        self,
        by: Callable[[T], object] | str | None = None,
        *,
        keep: Keep = "first",
        within: str | float | timedelta | None = None,
        **common: Unpack[Common],
    ) -> Stream[T]:
        """Keeps one record of those with the same key that come within a length of time.

        The time is event time on a stream with timestamps, else processing time. The first record of a key opens a
        span; records less than ``within`` away from it are its duplicates, and the next one opens another span. A key
        is forgotten when its span has ended.

        Args:
            by: a function of the record or the name of a field; None for the record itself.
            keep: "first" to pass on the first record at once, "last" to pass on the last one when the span has ended.
                In event time that is the one with the highest timestamp, and it gets the end of the span less 1 ns.
            within: the length of time; None to remember every key for ever. ``keep="last"`` passes on the last record
                of each key so far then, once for each batch of input that has a later one.

        Raises:
            InvalidJob: ``keep`` is neither.

        Example::

            orders.deduplicate("order_id", within="10min")
        """
        if by is None:
            refuse_columns(self._graph, self._inputs, common.get("name") or "deduplicate", 'deduplicate("id")')
        keyed = self._stream(self._inputs).key_by(_WholeRecord("deduplicate", "by") if by is None else by)
        return keyed.deduplicate(keep=keep, within=within, **common)

    def sample(self, fraction: float, seed: int = 0, **common: Unpack[Common]) -> Stream[T]:
        """Keeps about this fraction of the records, 0 to 1, chosen by a hash of the record and ``seed``.

        A record is kept in every run or in none, and equal records are kept or left out together. To draw each record
        anew, write ``filter(lambda record: random.random() < 0.1)`` with ``clonos.random``.

        Raises:
            InvalidJob: ``fraction`` is not a number from 0 to 1.
        """
        if not _is_fraction(fraction):
            raise InvalidJob(
                common.get("name") or "sample", f"gets the fraction {fraction!r:.80}", "Give a number from 0 to 1."
            )
        return self._stream(self._step("sample", partial(sample, fraction=fraction, seed=seed), common))

    def peek(self, function: Callable[[T], object], **common: Unpack[CommonWithEffects]) -> Stream[T]:
        """Calls ``function`` with each record, such as ``print``, and passes the record on. Its result is ignored.

        Of a stream of columns it gets a dict for each record, and the columns pass on as they are.
        """
        return self._stream(self._step("peek", partial(peek, function=function), common))

    def iterate(
        self, function: Callable[[T], T | None], *, times_max: int, **common: Unpack[CommonWithEffects]
    ) -> Stream[T]:
        """Repeats ``function`` on each record and its results, until it returns None or was called ``times_max`` times.

        The last value is the result of the record; it is the record itself if the first call returns None. All calls
        are in one task. A stream cannot feed a step before it.

        Raises:
            InvalidJob: ``times_max`` is not an int of at least 1.

        Example::

            numbers.iterate(lambda n: None if n < 10 else n // 10, times_max=20)  # the first digit
        """
        if type(times_max) is not int or times_max < 1:
            raise InvalidJob(
                common.get("name") or "iterate",
                f"has times_max={times_max!r:.80}",
                "Give the most calls for a record: at least 1.",
            )
        operator = partial(stateless.Map, Iterated(function, times_max))
        return self._stream(self._step("iterate", plain(operator, function), common))

    def limit(self, count: int, *, name: str | None = None, standby: StandbyMode | None = None) -> Stream[T]:
        """Passes on the first ``count`` records, in one task, and drops the others.

        Then it ends the sources in front of it, and with them their other streams. In the task of a source, no more is
        read than needed: use ``job.source(..., limit=count)``, or give the source ``parallelism=1``.

        Raises:
            InvalidJob: ``count`` is not an int of at least 1.
        """
        if type(count) is not int or count < 1:
            raise InvalidJob(
                name or "limit", f"gets {count!r:.80}", "Give the number of records: an int of at least 1."
            )
        common: Common = {"name": name, "parallelism": 1, "standby": standby}
        return self._stream(self._step("limit", plain(partial(Limit, count=count)), common))

    def branch(self, *predicates: Callable[[T], object] | bool, **common: Unpack[Common]) -> tuple[Stream[T], ...]:
        """Divides the stream: a record goes to the branch of the first predicate that is true for it, or is dropped.

        ``True`` as the last predicate takes the rest. Each predicate is called once per record, at most.

        Raises:
            InvalidJob: there is no predicate, or one of them is neither a function nor a bool.

        Example::

            big, small = numbers.branch(lambda number: number > 5, True)
        """
        kind = "branch"
        if not predicates or not all(isinstance(each, bool) or callable(each) for each in predicates):
            raise InvalidJob(
                common.get("name") or kind,
                f"gets the predicates {predicates!r:.80}",
                "Give one function of the record for each branch; True is the predicate that takes the rest.",
            )
        (divided,) = self._step(kind, partial(Branch.facts, predicates=predicates), common)
        common["name"] = None
        return tuple(self._branch(replace(divided, tag=tag), common) for tag in branch_tags(len(predicates)))

    def split(self, predicate: Callable[[T], object], **common: Unpack[Common]) -> tuple[Stream[T], Stream[T]]:
        """Divides the stream in two: the records for which ``predicate`` is true, and the others.

        Example::

            valid, broken = rows.split(lambda row: row["price"] > 0)
        """
        check_function("split", common.get("name") or "split", predicate)
        chosen, rest = self.branch(predicate, True, **common)
        return chosen, rest

    def _branch(self, divided: StepInput, common: Common) -> Stream[T]:
        name = f"{self._graph.steps[divided.step].name}.{divided.tag}"
        return self._stream(self._stream((divided,))._step(name, plain(OneBranch), common))


def _is_fraction(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


class _WholeRecord:
    """The record itself as its key. ``option``: the argument of ``method`` that names another key."""

    def __init__(self, method: str, option: str) -> None:
        self._method, self._option = method, option

    def __call__(self, record: Any) -> Any:
        if type(record) in (dict, list, set):
            raise TypeError(
                f"{self._method} compares whole records, and a {type(record).__name__} cannot be a key: give"
                f' {self._option}=, such as {self._option}="id"'
            )
        return record
