"""Methods of a keyed stream that choose among the records of each key: duplicates and the top k."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from clonos.api.graph_errors import InvalidJob
from clonos.api.steps import GraphBuilder, StandbyMode
from clonos.api.transforms.choosing import Keep
from clonos.api.windows import duration_ns
from clonos.operators.fields import Field
from clonos.operators.operator import Operator
from clonos.operators.transforms.deduplicate import Deduplicate, DeduplicateWithin, LastWithin
from clonos.operators.transforms.top_k import TopK

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")
K = TypeVar("K")


class KeyedChoosing(GraphBuilder, Generic[K, T]):
    """Base of ``KeyedStream`` with the methods that choose among the records of a key."""

    def distinct(
        self,
        key: Callable[[T], object] | str | None = None,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[T]:
        """Keeps the first of equal records of each key of the stream, for ever.

        ``key`` is a function of the record or the name of a field that is compared instead; None for the record itself.
        """
        return self._deduplicated("distinct", _itself if key is None else key, name, parallelism, standby)

    def deduplicate(
        self,
        by: Callable[[T], object] | str | None = None,
        *,
        keep: Keep = "first",
        within: str | float | timedelta | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[T]:
        """Keeps one record of each key of those that come within a length of time, as ``Stream.deduplicate`` does.

        ``by`` is a function of the record or the name of a field that has to be equal too; None for the stream's key
        alone.

        Raises:
            InvalidJob: ``keep`` is neither "first" nor "last", or "last" without ``within``.
        """
        kind = "deduplicate"
        if keep not in ("first", "last"):
            raise InvalidJob(name or kind, f"has keep={keep!r:.80}", 'Give "first" or "last".')
        if keep == "last" and within is None:
            raise InvalidJob(
                name or kind,
                'has keep="last" and no within=, so that it would never emit',
                'Give within= a length of time, such as "10min": the last record leaves when it has ended.',
            )
        within_ns = None if within is None else duration_ns(within)
        return self._deduplicated(kind, by, name, parallelism, standby, keep, within_ns)

    def top_k(
        self,
        k: int,
        by: Callable[[T], Any] | str | None = None,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[tuple[K, list[T]]]:
        """Keeps the ``k`` highest records of each key, and emits (key, records) whenever that list changes.

        The highest comes first; of equal ones the earlier. ``by`` is a function of the record or the name of a field
        that gives the rank; None for the record itself. For the lowest, negate the rank.

        Raises:
            InvalidJob: ``k`` is not an int of at least 1.
        """
        if type(k) is not int or k < 1:
            raise InvalidJob(name or "top_k", f"gets k={k!r:.80}", "Give the number of records: an int of at least 1.")
        options = {"name": name, "parallelism": parallelism, "effects": False, "standby": standby}
        rank = _function_of(_itself if by is None else by)
        step = self._step(
            "top_k",
            partial(partial, TopK, function=rank, k=k),
            options,
            (by,) if callable(by) else (),
            runs_user_code=True,
            key_field="",
            state=(("k", str(k)), _field_text(by)),
        )
        return self._stream(step)

    def _deduplicated(
        self,
        kind: str,
        by: Any,
        name: str | None,
        parallelism: int | None,
        standby: StandbyMode | None,
        keep: Keep = "first",
        within_ns: int | None = None,
    ) -> Stream[T]:
        options = {"name": name, "parallelism": parallelism, "effects": False, "standby": standby}
        function = None if by is None else _function_of(by)
        has_times = self._graph.have_times(self._inputs)
        make: Callable[[str], Callable[[], Operator]] = partial(partial, Deduplicate, by=function)
        if within_ns is not None:
            retained = DeduplicateWithin if keep == "first" else LastWithin
            make = partial(partial, retained, by=function, within_ns=within_ns, has_times=has_times)
        step = self._step(
            kind,
            make,
            options,
            (by,) if callable(by) and by is not _itself else (),
            runs_user_code=by is not None,
            selects_rows=True,
            state=(("keep", keep), ("within", str(within_ns)), ("event time", str(has_times)), _field_text(by)),
        )
        return self._stream(step)


def _field_text(by: Any) -> tuple[str, str]:
    if by is None or isinstance(by, str):
        return "field", "none" if by is None else repr(by)
    return "field", "the record" if by is _itself else "a function"


def _function_of(by: Any) -> Callable[[Any], Any]:
    return Field(by) if isinstance(by, str) else by


def _itself(record: Any) -> Any:
    return record
