"""Methods of keyed streams that join two of them by their keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from clonos.api.common import CommonWithEffects
from clonos.api.graph_errors import InvalidJob
from clonos.api.joining.joins import JoinOptions, as_of_step, join_step, lookup_step
from clonos.api.joining.stream_joins import AsOfOptions
from clonos.api.step import Exchange
from clonos.api.steps import GraphBuilder
from clonos.api.themes import Theme

if TYPE_CHECKING:
    from clonos.api.keyed_stream import KeyedStream
    from clonos.api.stream import Stream

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
R = TypeVar("R")


class KeyedJoins(Theme, Generic[K, T]):
    """Joins of a keyed stream with another one. They are those of ``Stream``, without ``on``."""

    # fmt: off
    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["inner"] = "inner", select: None = None,
        **options: Unpack[JoinOptions]
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["left"], select: None = None, **options: Unpack[JoinOptions]
    ) -> Stream[tuple[T, U | None]]: ...

    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["right"], select: None = None, **options: Unpack[JoinOptions]
    ) -> Stream[tuple[T | None, U]]: ...

    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["full"], select: None = None, **options: Unpack[JoinOptions]
    ) -> Stream[tuple[T | None, U | None]]: ...

    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["semi", "anti"], **options: Unpack[JoinOptions]
    ) -> Stream[T]: ...

    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["inner"] = "inner", select: Callable[[T, U], R],
        **options: Unpack[JoinOptions]
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["left"], select: Callable[[T, U | None], R],
        **options: Unpack[JoinOptions]
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["right"], select: Callable[[T | None, U], R],
        **options: Unpack[JoinOptions]
    ) -> Stream[R]: ...

    @overload
    def join(
        self, other: KeyedStream[K, U], *, how: Literal["full"], select: Callable[[T | None, U | None], R],
        **options: Unpack[JoinOptions]
    ) -> Stream[R]: ...
    # fmt: on

    def join(
        self,
        other: KeyedStream[K, Any],
        *,
        on: None = None,
        how: str = "inner",
        select: Callable[[Any, Any], Any] | None = None,
        **options: Unpack[JoinOptions],
    ) -> Stream[Any]:
        """Joins records of this (left) stream with those of ``other`` (right) that have the same key and a near time.

        Both streams are keyed, so there is no ``on``. Everything else is as in ``Stream.join``.

        Raises:
            InvalidJob: ``other`` is not keyed, or the streams or the arguments do not fit.

        Example::

            orders.key_by("id").join(shipments.key_by("order_id"), between=(0, "2d"))
        """
        _check_keyed(options.get("name") or "join", "join", other, on)
        return self._stream(join_step(self, other, how=how, select=select, **options))

    # fmt: off
    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, how: Literal["left"] = "left", select: None = None,
        **options: Unpack[AsOfOptions]
    ) -> Stream[tuple[T, U | None]]: ...

    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, how: Literal["inner"], select: None = None, **options: Unpack[AsOfOptions]
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, how: Literal["left"] = "left", select: Callable[[T, U | None], R],
        **options: Unpack[AsOfOptions]
    ) -> Stream[R]: ...

    @overload
    def join_as_of(
        self, other: KeyedStream[K, U], *, how: Literal["inner"], select: Callable[[T, U], R],
        **options: Unpack[AsOfOptions]
    ) -> Stream[R]: ...
    # fmt: on

    def join_as_of(
        self,
        other: KeyedStream[K, Any],
        *,
        on: None = None,
        how: str = "left",
        select: Callable[[Any, Any], Any] | None = None,
        **options: Unpack[AsOfOptions],
    ) -> Stream[Any]:
        """Joins each record with the one of ``other`` that was valid for its key at its time, as in ``Stream``.

        Raises:
            InvalidJob: ``other`` is not keyed, a stream has no timestamps, or an argument cannot be used.
        """
        _check_keyed(options.get("name") or "join_as_of", "join_as_of", other, on)
        return self._stream(as_of_step(self, other, how=how, select=select, **options))

    # fmt: off
    @overload
    def lookup(
        self, table: KeyedStream[K, U], *, how: Literal["left"] = "left", select: None = None,
        **common: Unpack[CommonWithEffects]
    ) -> Stream[tuple[T, U | None]]: ...

    @overload
    def lookup(
        self, table: KeyedStream[K, U], *, how: Literal["inner"], select: None = None,
        **common: Unpack[CommonWithEffects]
    ) -> Stream[tuple[T, U]]: ...

    @overload
    def lookup(
        self, table: KeyedStream[K, U], *, how: Literal["left"] = "left", select: Callable[[T, U | None], R],
        **common: Unpack[CommonWithEffects]
    ) -> Stream[R]: ...

    @overload
    def lookup(
        self, table: KeyedStream[K, U], *, how: Literal["inner"], select: Callable[[T, U], R],
        **common: Unpack[CommonWithEffects]
    ) -> Stream[R]: ...
    # fmt: on

    def lookup(
        self,
        table: KeyedStream[K, Any],
        *,
        on: None = None,
        how: str = "left",
        select: Callable[[Any, Any], Any] | None = None,
        **common: Unpack[CommonWithEffects],
    ) -> Stream[Any]:
        """Joins each record with the row of its key that came last in ``table``, as in ``Stream``.

        Raises:
            InvalidJob: ``table`` is not keyed, or an argument cannot be used.
        """
        _check_keyed(common.get("name") or "lookup", "lookup", table, on)
        return self._stream(lookup_step(self, table, how=how, select=select, **common))


def _check_keyed(step: str, method: str, other: GraphBuilder, on: object) -> None:
    """Raises: InvalidJob: the other stream of a join has no keys, or the join gets others."""
    if on is not None:
        problem = f"gets on={on!r:.80}, and its streams have the keys of key_by"
        raise InvalidJob(step, problem, "Leave on out, or leave out both key_by.")
    if any(each.exchange is not Exchange.HASH for each in other._inputs):
        raise InvalidJob(
            step,
            "joins a keyed stream with one without keys",
            f'Call key_by on both: a.key_by("id").{method}(b.key_by("order_id"), ...),'
            f' or on none: a.{method}(b, on=("id", "order_id"), ...).',
        )
