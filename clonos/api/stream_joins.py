"""Methods of streams that join two of them by a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from clonos.api.event_time import Duration
from clonos.api.joins import Closed, JoinOptions, StepOptions, join_step, keyed_sides
from clonos.api.steps import GraphBuilder, StandbyMode
from clonos.api.windows import Tumbling
from clonos.operators.tags import Tag

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")

On = str | tuple[str | Callable[[T], Any], str | Callable[[U], Any]]
"""Key of a join: a field of both streams, or a field or function of each of them."""


class StreamJoins(GraphBuilder, Generic[T]):
    """Joins of a stream with another one."""

    # fmt: off
    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["inner"] = "inner", select: None = None,
        **options: Unpack[JoinOptions],
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["left"], select: None = None,
        **options: Unpack[JoinOptions],
    ) -> Stream[tuple[T, U | None]]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["right"], select: None = None,
        **options: Unpack[JoinOptions],
    ) -> Stream[tuple[T | None, U]]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["full"], select: None = None,
        **options: Unpack[JoinOptions],
    ) -> Stream[tuple[T | None, U | None]]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["semi", "anti"], **options: Unpack[JoinOptions],
    ) -> Stream[T]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["inner"] = "inner", select: Callable[[T, U], R],
        **options: Unpack[JoinOptions],
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["left"], select: Callable[[T, U | None], R],
        **options: Unpack[JoinOptions],
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["right"], select: Callable[[T | None, U], R],
        **options: Unpack[JoinOptions],
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: Stream[U], *, on: On[T, U], how: Literal["full"], select: Callable[[T | None, U | None], R],
        **options: Unpack[JoinOptions],
    ) -> Stream[R]: ...
    # fmt: on

    def join(
        self,
        other: Stream[Any],
        *,
        on: Any,
        how: str = "inner",
        select: Callable[[Any, Any], Any] | None = None,
        between: tuple[Duration, Duration] | None = None,
        closed: Closed = "both",
        window: Tumbling | None = None,
        ttl: Duration | None = None,
        late: Tag[Any] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: StandbyMode | None = None,
    ) -> Stream[Any]:
        """Joins records of this (left) stream with those of ``other`` (right) that have the same key and a near time.

        A result is the pair (left, right), or ``select(left, right)``, with the later timestamp of both; a record
        without a match has its own. A record is late if its matches may be forgotten: see ``late``.

        Args:
            on: a field of both streams, or a pair: a field or function of the left stream and one of the right.
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
        from clonos.api.stream import Stream

        left, right = keyed_sides(self, other, on, name or "join")
        options = StepOptions(name=name, parallelism=parallelism, effects=effects, standby=standby)
        bounds: Any = {"between": between, "closed": closed, "window": window, "ttl": ttl, "late": late}
        return Stream(self._graph, join_step(left, right, how=how, select=select, options=options, **bounds))
