"""Methods of a keyed stream that choose among the records of each key: duplicates and the top k."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from clonos.api.checks.function_checks import COMPUTE_FIRST
from clonos.api.columns.column_checks import check_present
from clonos.api.columns.forms import refuse_columns
from clonos.api.common import Common
from clonos.api.graph_errors import InvalidJob
from clonos.api.themes import Theme
from clonos.expressions.expression import Expr
from clonos.operators.event_time.durations import duration_ns
from clonos.operators.fields import itself
from clonos.operators.transforms.deduplicate import Deduplicate, Keep
from clonos.operators.transforms.top_k import TopK

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")
K = TypeVar("K")


class KeyedChoosing(Theme, Generic[K, T]):
    """Base of ``KeyedStream`` with the methods that choose among the records of a key."""

    def distinct(self, key: Callable[[T], object] | str | None = None, **common: Unpack[Common]) -> Stream[T]:
        """Keeps the first of equal records of each key of the stream, for ever.

        ``key`` is a function of the record or the name of a field that is compared instead; None for the record itself.
        """
        if key is None:
            refuse_columns(self._graph, self._inputs, common.get("name") or "distinct", 'distinct("id")')
        return self._deduplicated("distinct", itself if key is None else key, common)

    def deduplicate(
        self,
        by: Callable[[T], object] | str | None = None,
        *,
        keep: Keep = "first",
        within: str | float | timedelta | None = None,
        **common: Unpack[Common],
    ) -> Stream[T]:
        """Keeps one record of each key of those that come within a length of time, as ``Stream.deduplicate`` does.

        ``by`` is a function of the record or the name of a field that has to be equal too; None for the stream's key
        alone.

        Raises:
            InvalidJob: ``keep`` is neither "first" nor "last".
        """
        kind = "deduplicate"
        if keep not in ("first", "last"):
            raise InvalidJob(common.get("name") or kind, f"has keep={keep!r:.80}", 'Give "first" or "last".')
        within_ns = None if within is None else duration_ns(within)
        return self._deduplicated(kind, by, common, keep, within_ns)

    @overload
    def top_k(
        self, k: int, by: Callable[[T], Any] | str | None = None, **common: Unpack[Common]
    ) -> Stream[tuple[K, list[T]]]: ...

    @overload
    def top_k(
        self, k: int, by: Callable[[T], Any] | str | None = None, *, rank: str, **common: Unpack[Common]
    ) -> Stream[dict[str, Any]]: ...

    def top_k(
        self, k: int, by: Callable[[T], Any] | str | None = None, *, rank: str | None = None, **common: Unpack[Common]
    ) -> Stream[Any]:
        """Keeps the ``k`` highest records of each key, and emits (key, records) whenever that list changes.

        Over columns the results are columns: the key, the timestamps if there are any, and the list ``records``.

        With ``rank``, the results are records with their rank: those whose rank a batch of input has changed, once. The
        last result of a key and rank is the present one, and how many there are before it depends on batches.

        Args:
            k: the number of records.
            by: a function of the record or the name of a field that is compared, the highest first; None for the record
                itself. Of equal ones the earlier is first. For the lowest, negate it.
            rank: the name of the field, of records that are dicts, or of the column that gets the rank, from 1 on. Such
                results have no timestamps. Over columns they are columns.

        Raises:
            InvalidJob: ``k`` is not an int of at least 1, or ``rank`` is no name.

        Example::

            bids.key_by("auction").top_k(10, "price", rank="rank")
        """
        if type(k) is not int or k < 1:
            raise InvalidJob(
                common.get("name") or "top_k", f"gets k={k!r:.80}", "Give the number of records: an int of at least 1."
            )
        if rank is not None and (type(rank) is not str or not rank):
            raise InvalidJob(
                common.get("name") or "top_k", f"gets rank={rank!r:.80}", "Give the name of the field for the rank."
            )
        _check_compared(common.get("name") or "top_k", itself if by is None else by)
        keys = self._graph.key_columns(self._inputs)
        check_present(self._graph, self._inputs, common.get("name") or "top_k", f"ranks by {by!r}", by)
        if rank is not None and (rank == by or rank in keys):
            problem = f"gets rank={rank!r}, the field of the {'values' if rank == by else 'key'}"
            raise InvalidJob(
                common.get("name") or "top_k", problem, "Give a name that records do not have: it replaces a field."
            )
        return self._stream(self._step("top_k", partial(TopK.facts, by=by, k=k, rank=rank), common))

    def _deduplicated(
        self,
        kind: str,
        by: Any,
        common: Common,
        keep: Keep = "first",
        within_ns: int | None = None,
    ) -> Stream[T]:
        name = common.get("name") or kind
        if by is not None:
            _check_compared(name, by)
        check_present(self._graph, self._inputs, name, f"compares {by!r}", by)
        definition = partial(Deduplicate.facts, by=by, keep=keep, within_ns=within_ns)
        return self._stream(self._step(kind, definition, common))


def _check_compared(step: str, by: Any) -> None:
    """Raises: InvalidJob: what is compared is neither a name nor a function."""
    if not isinstance(by, str) and not callable(by):
        advice = COMPUTE_FIRST if isinstance(by, Expr) else "Give a function of the record, or the name of a field."
        raise InvalidJob(step, f"compares {by!r:.100}, which is neither a function nor the name of a field", advice)
