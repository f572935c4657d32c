"""Windows of a keyed stream and their aggregations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, overload

from clonos.api.graph import JobGraph, StepInput
from clonos.api.steps import GraphBuilder, StandbyMode
from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.operators.steps import aggregates
from clonos.operators.steps.windows import Window, WindowResult

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class WindowedStream(GraphBuilder, Generic[K, T]):
    """Windows of each key of a stream, not yet aggregated.

    An aggregation emits one ``WindowResult`` per key and window when the window ends; open windows are emitted when the
    input ends. The methods take the keywords of ``Stream``.
    """

    def __init__(self, graph: JobGraph, inputs: tuple[StepInput, ...], kind: Tumbling) -> None:
        super().__init__(graph, inputs)
        self._kind = kind

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
        return Stream(
            self._graph,
            self._window("sum", aggregates.Sum(of), () if of is None else (of,), name, parallelism, standby),
        )

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
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
    ) -> Stream[WindowResult[K, Any]]:
        """Aggregates each window with an accumulator of your own.

        Args:
            create: returns a new accumulator.
            add: called with (accumulator, value); returns the new accumulator, or None if it has changed it in place.
            result: turns the accumulator into the value of the window; None for the accumulator itself.

        Example::

            stream.window(Tumbling("1min")).aggregate(list, list.append)  # all values of each window
        """
        aggregate = aggregates.Accumulate(create, add, result)
        functions = (create, add) if result is None else (create, add, result)
        return Stream(self._graph, self._window("aggregate", aggregate, functions, name, parallelism, standby))

    def _window(
        self,
        what: str,
        aggregate: aggregates.Aggregate,
        called: tuple[Any, ...],
        name: str | None,
        parallelism: int | None,
        standby: StandbyMode | None,
    ) -> tuple[StepInput, ...]:
        options = {"name": name, "parallelism": parallelism, "effects": False, "standby": standby}
        size_ns = self._kind.size_ns
        fields = tuple(("field", repr(each)) for each in called if what == "sum" and isinstance(each, str))
        functions = () if fields else called
        return self._step(
            f"window_{what}",
            lambda step: partial(Window, step, size_ns, aggregate),
            options,
            functions,
            runs_user_code=what != "count",
            state=(("window", str(self._kind)), *fields),
            key_field=WindowResult._fields[0],
            ignores_order=aggregate.ignores_order,
            has_times=False,
        )
