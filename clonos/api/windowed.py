"""Windows of a stream and their aggregations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from clonos.api.graph import JobGraph, StepInput
from clonos.api.steps import GraphBuilder, StandbyMode
from clonos.api.stream import Stream
from clonos.api.window_step import WindowSettings
from clonos.operators.windows import window_aggregates as aggregates
from clonos.operators.windows.results import Window, WindowResult

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class WindowedStream(GraphBuilder, Generic[K, T]):
    """Windows of each key of a stream, or of a stream without keys, not yet aggregated.

    An aggregation emits one ``WindowResult`` per key and window when the window ends; open windows are emitted when the
    input ends. The methods take the keywords of ``Stream``.
    """

    def __init__(self, graph: JobGraph, inputs: tuple[StepInput, ...], settings: WindowSettings) -> None:
        super().__init__(graph, inputs)
        self._settings = settings

    def count(
        self, *, name: str | None = None, parallelism: int | None = None, standby: StandbyMode | None = None
    ) -> Stream[WindowResult[K, int]]:
        """Counts the records of each window."""
        return Stream(self._graph, self._window("count", aggregates.CountAggregate(), (), name, parallelism, standby))

    @overload
    def sum(
        self,
        of: None = None,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[WindowResult[K, T]]: ...

    @overload
    def sum(
        self,
        of: Callable[[T], V],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[WindowResult[K, V]]: ...

    @overload
    def sum(
        self, of: str, *, name: str | None = None, parallelism: int | None = None, standby: StandbyMode | None = None
    ) -> Stream[WindowResult[K, Any]]: ...

    def sum(
        self,
        of: Any = None,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Any:
        """Sums the values of each window: the records, or ``of`` each record.

        ``of`` is a function of the record, or the name of a field of dicts or of a column.
        """
        return Stream(self._graph, self._window("sum", aggregates.Sum(of), (of,), name, parallelism, standby))

    def reduce(
        self,
        function: Callable[[T, T], T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[WindowResult[K, T]]:
        """Combines the values of each window by ``function(so_far, value)``."""
        aggregate = aggregates.ReduceAggregate(function)
        return Stream(self._graph, self._window("reduce", aggregate, (function,), name, parallelism, standby))

    @overload
    def aggregate(
        self,
        create: Callable[[], A],
        add: Callable[[A, T], A | None],
        *,
        merge: Callable[[A, A], A | None] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[WindowResult[K, A]]: ...

    @overload
    def aggregate(
        self,
        create: Callable[[], A],
        add: Callable[[A, T], A | None],
        result: Callable[[A], V],
        *,
        merge: Callable[[A, A], A | None] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[WindowResult[K, V]]: ...

    def aggregate(
        self,
        create: Callable[[], Any],
        add: Callable[[Any, T], Any],
        result: Callable[[Any], Any] | None = None,
        *,
        merge: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[WindowResult[K, Any]]:
        """Aggregates each window with an accumulator of your own.

        Args:
            create: returns a new accumulator.
            add: called with (accumulator, value); returns the new accumulator, or None if it has changed it in place.
            result: turns the accumulator into the value of the window; None for the accumulator itself.
            merge: called with two accumulators, the second one of later records; returns the accumulator of both, or
                None if it has changed the first one in place. Without it, sliding and session windows and windows with
                lateness keep all their values until they emit.

        Example::

            stream.window(Tumbling("1min")).aggregate(list, list.append)  # all values of each window
        """
        aggregate = aggregates.Accumulate(create, add, result, merge)
        functions = tuple(each for each in (create, add, result, merge) if each is not None)
        return Stream(self._graph, self._window("aggregate", aggregate, functions, name, parallelism, standby))

    def apply(
        self,
        function: Callable[[K, Window, list[T]], Iterable[U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[U]:
        """Calls ``function(key, window, values)`` when a window ends, with all its values in order of arrival.

        Its results, any number of them, are the records of the stream. The window keeps all values; an aggregation
        keeps one accumulator.

        Example::

            def longest_first(key, window, values):
                return [(key, window.start, value) for value in sorted(values, key=len, reverse=True)]

            lines.key_by(first_word).window(Tumbling("1min")).apply(longest_first)
        """
        gathered = aggregates.Gathered()
        return Stream(self._graph, self._window("apply", gathered, (function,), name, parallelism, standby, function))

    def _window(
        self,
        what: str,
        aggregate: aggregates.Aggregate,
        called: tuple[Any, ...],
        name: str | None,
        parallelism: int | None,
        standby: StandbyMode | None,
        apply: Any = None,
    ) -> tuple[StepInput, ...]:
        settings = self._settings
        kind = f"window_{what}"
        parallelism = settings.checked_parallelism(name or kind, parallelism)
        options = {"name": name, "parallelism": parallelism, "effects": False, "standby": standby}
        fields = tuple(("field", repr(each)) for each in called if isinstance(each, str))
        return self._step(
            kind,
            settings.operators(aggregate, apply),
            options,
            tuple(filter(callable, called)),
            runs_user_code=what != "count",
            state=(*settings.state_text, *fields),
            key_field=WindowResult._fields[0] if settings.rules.is_keyed and apply is None else None,
            ignores_order=aggregate.ignores_order and settings.ignores_order,
            has_times=settings.has_times,
            has_side_outputs=settings.rules.late_tag is not None,
        )
