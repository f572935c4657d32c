"""Windows of a stream and their aggregations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from clonos.api.graph import JobGraph, StepInput
from clonos.api.steps import GraphBuilder, StandbyMode
from clonos.api.stream import Stream
from clonos.api.window_step import WindowSettings
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.aggregates.custom import Custom, Reduction
from clonos.operators.windows.gathered import Gathered
from clonos.operators.windows.results import Window, WindowResult
from clonos.operators.windows.window_aggregates import Count, Sum

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
        return Stream(self._graph, self._window("count", Count(), name, parallelism, standby))

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
        functions = () if of is None or isinstance(of, str) else (of,)
        return Stream(self._graph, self._window("sum", Sum(of), name, parallelism, standby, functions))

    def reduce(
        self,
        function: Callable[[T, T], T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[WindowResult[K, T]]:
        """Combines the values of each window by ``function(so_far, value)``."""
        return Stream(self._graph, self._window("reduce", Reduction(function), name, parallelism, standby))

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
        aggregation = Custom(create, add, merge, result)
        functions: tuple[Any, ...] = (create, add) if result is None else (create, add, result)
        if merge is not None:
            functions = (create, add, result or _same, merge)
        return Stream(self._graph, self._window("aggregate", aggregation, name, parallelism, standby, functions))

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
        return Stream(self._graph, self._window("apply", Gathered(), name, parallelism, standby, (function,)))

    def _window(
        self,
        what: str,
        aggregation: Aggregation[Any, Any],
        name: str | None,
        parallelism: int | None,
        standby: StandbyMode | None,
        functions: tuple[Any, ...] | None = None,
    ) -> tuple[StepInput, ...]:
        settings, apply = self._settings, functions[0] if what == "apply" and functions else None
        kind = f"window_{what}"
        parallelism = settings.checked_parallelism(name or kind, parallelism)
        options = {"name": name, "parallelism": parallelism, "effects": False, "standby": standby}
        of = aggregation.of if isinstance(aggregation, Sum) else None
        fields = (("field", repr(of)),) if isinstance(of, str) else ()
        return self._step(
            kind,
            settings.operators(aggregation, apply),
            options,
            aggregation.functions if functions is None else functions,
            runs_user_code=what != "count",
            state=(*settings.state_text, *fields),
            key_field=WindowResult._fields[0] if settings.rules.is_keyed and apply is None else None,
            ignores_order=aggregation.ignores_order and settings.ignores_order,
            has_times=settings.has_times,
            has_side_outputs=settings.rules.late_tag is not None,
        )


def _same(accumulator: Any) -> Any:
    return accumulator
