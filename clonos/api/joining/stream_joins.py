"""Methods of streams that join two of them by a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from clonos.api.common import Common, CommonWithEffects
from clonos.api.joining.joins import (
    JoinOptions,
    as_of_step,
    join_step,
    keyed_sides,
    lookup_step,
    merge_step,
)
from clonos.api.themes import Theme
from clonos.operators.event_time.durations import Duration
from clonos.operators.tags import Tag

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")

AsOfDirection = Literal["backward", "forward", "nearest"]

On = str | list[str] | tuple[str | list[str] | Callable[[T], Any], str | list[str] | Callable[[U], Any]]
"""Key of a join: a field of both streams or a list of fields, or a field, a list or a function of each of them."""


class AsOfOptions(CommonWithEffects, total=False):
    """Options of ``join_as_of`` that do not change the type of its results."""

    direction: AsOfDirection
    tolerance: Duration | None
    late: Tag[Any] | None


class StreamJoins(Theme, Generic[T]):
    """Joins of a stream with another one."""

    # fmt: off
    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["inner"] = "inner", select: None = None,
        **options: Unpack[JoinOptions]
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["left"], select: None = None,
        **options: Unpack[JoinOptions]
    ) -> Stream[tuple[T, U | None]]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["right"], select: None = None,
        **options: Unpack[JoinOptions]
    ) -> Stream[tuple[T | None, U]]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["full"], select: None = None,
        **options: Unpack[JoinOptions]
    ) -> Stream[tuple[T | None, U | None]]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["semi", "anti"], **options: Unpack[JoinOptions]
    ) -> Stream[T]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["inner"] = "inner", select: Callable[[T, U], R],
        **options: Unpack[JoinOptions]
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["left"], select: Callable[[T, U | None], R],
        **options: Unpack[JoinOptions]
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["right"], select: Callable[[T | None, U], R],
        **options: Unpack[JoinOptions]
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["full"], select: Callable[[T | None, U | None], R],
        **options: Unpack[JoinOptions]
    ) -> Stream[R]: ...
    # fmt: on

    def join(
        self,
        other: Stream[Any],
        *,
        on: Any = None,
        how: str = "inner",
        select: Callable[[Any, Any], Any] | None = None,
        **options: Unpack[JoinOptions],
    ) -> Stream[Any]:
        """Joins records of this (left) stream with those of ``other`` (right) that have the same key and a near time.

        A result is the pair (left, right), or ``select(left, right)``, with the later timestamp of both; a record
        without a match has its own. A record is late if its matches may be forgotten: see ``late``.

        Args:
            on: a field of both streams, or a list of fields; or a pair: a field, a list of fields or a function of the
                left stream, and one of the right.
            how: "inner" for pairs; "left", "right" or "full" for pairs, and with None the records of that side that
                have no match, when none can come any more; "semi" or "anti" for left records with or without a match.
            between: the least and the greatest difference, right timestamp less left timestamp, such as ("-1h", "1h").
            closed: which of these two bounds match: "both", "left", "right" or "neither".
            window: in place of ``between``: both timestamps are in the same window.
            ttl: in place of ``between``: the records are at most this far apart, by their timestamps; without
                timestamps by the times at which they come.
            late: tag of the side output for late records of both streams. None: the first one is logged as a warning.

        Raises:
            InvalidJob: the streams lack timestamps or a bound in time, or an argument cannot be used.

        Example::

            orders.join(shipments, on=("id", "order_id"), between=(0, "2d"), how="left")
        """
        left, right = keyed_sides(self, other, on, options.get("name") or "join")
        return self._stream(join_step(left, right, how=how, select=select, **options))

    # fmt: off
    @overload
    def join_as_of(
        self, other: Stream[U], *, on: On[T, U], how: Literal["left"] = "left", select: None = None,
        **options: Unpack[AsOfOptions]
    ) -> Stream[tuple[T, U | None]]: ...

    @overload
    def join_as_of(
        self, other: Stream[U], *, on: On[T, U], how: Literal["inner"], select: None = None,
        **options: Unpack[AsOfOptions]
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def join_as_of(
        self, other: Stream[U], *, on: On[T, U], how: Literal["left"] = "left", select: Callable[[T, U | None], R],
        **options: Unpack[AsOfOptions]
    ) -> Stream[R]: ...

    @overload
    def join_as_of(
        self, other: Stream[U], *, on: On[T, U], how: Literal["inner"], select: Callable[[T, U], R],
        **options: Unpack[AsOfOptions]
    ) -> Stream[R]: ...
    # fmt: on

    def join_as_of(
        self,
        other: Stream[Any],
        *,
        on: Any = None,
        how: str = "left",
        select: Callable[[Any, Any], Any] | None = None,
        **options: Unpack[AsOfOptions],
    ) -> Stream[Any]:
        """Joins each record with the one of ``other`` that was valid for its key at its time, such as a rate.

        That is the last one whose timestamp is not later. A record waits for it until the watermark of both streams has
        passed the record, and results leave in the order of their timestamps, which are those of this stream.

        Args:
            on: as for ``join``.
            direction: "backward" for the last one not later, "forward" for the first one not earlier,
                "nearest" for the nearer of both, or the earlier one at the same distance.
            tolerance: the greatest distance between both timestamps; needed unless the direction is "backward".
            how: "left" to emit a record without a match with None, "inner" to leave it out.
            select: makes the result from both records; by default it is a pair.
            late: tag of the side output for late records of both streams. None: the first one is logged as a warning.

        Raises:
            InvalidJob: a stream has no timestamps, or an argument cannot be used.

        Example::

            payments.join_as_of(rates, on="currency", select=lambda payment, rate: ...)
        """
        left, right = keyed_sides(self, other, on, options.get("name") or "join_as_of")
        return self._stream(as_of_step(left, right, how=how, select=select, **options))

    # fmt: off
    @overload
    def lookup(
        self, table: Stream[U], *, on: On[T, U], how: Literal["left"] = "left", select: None = None,
        **common: Unpack[CommonWithEffects]
    ) -> Stream[tuple[T, U | None]]: ...

    @overload
    def lookup(
        self, table: Stream[U], *, on: On[T, U], how: Literal["inner"], select: None = None,
        **common: Unpack[CommonWithEffects]
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def lookup(
        self, table: Stream[U], *, on: On[T, U], how: Literal["left"] = "left", select: Callable[[T, U | None], R],
        **common: Unpack[CommonWithEffects]
    ) -> Stream[R]: ...

    @overload
    def lookup(
        self, table: Stream[U], *, on: On[T, U], how: Literal["inner"], select: Callable[[T, U], R],
        **common: Unpack[CommonWithEffects]
    ) -> Stream[R]: ...
    # fmt: on

    def lookup(
        self,
        table: Stream[Any],
        *,
        on: Any = None,
        how: str = "left",
        select: Callable[[Any, Any], Any] | None = None,
        **common: Unpack[CommonWithEffects],
    ) -> Stream[Any]:
        """Joins each record with the row of its key that came last in ``table``, at once and whatever their timestamps.

        The order in which records of both streams come decides, and differs between two runs of a job; it is recorded,
        so a failure changes nothing. The last row of each key stays in the state for ever. Results have the timestamps
        of this stream. Use ``join_as_of`` for a result that depends on the timestamps alone, and waits for versions.

        Raises:
            InvalidJob: an argument cannot be used.
        """
        left, right = keyed_sides(self, table, on, common.get("name") or "lookup")
        return self._stream(lookup_step(left, right, how=how, select=select, **common))

    def merge_ordered(
        self,
        *others: Stream[T],
        late: Tag[T] | None = None,
        **common: Unpack[Common],
    ) -> Stream[T]:
        """Merges this stream with others in the order of their timestamps.

        A record leaves when the watermark of all streams has passed it, by timestamp, then by the place of its stream
        in the call, then by arrival. The order holds within a task, so the step has one task unless you give it more.

        Raises:
            InvalidJob: a stream has no timestamps, or belongs to another job.
        """
        common.setdefault("parallelism", 1)
        return self._stream(merge_step((self, *others), late, common))
