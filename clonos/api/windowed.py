"""Windows of a keyed stream and their aggregations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, overload

from clonos.api.aggregating import named_of
from clonos.api.graph import JobGraph, StepInput
from clonos.api.graph_errors import InvalidJob
from clonos.api.steps import GraphBuilder, StandbyMode
from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.custom import Custom, Reduction
from clonos.operators.aggregates.numeric import Sum
from clonos.operators.steps.aggregates import window_aggregate
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
        return Stream(self._graph, self._window("sum", Sum(of), name, parallelism, standby))

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

    @overload
    def aggregate(
        self,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
        **aggregates: Aggregation[T, Any],
    ) -> Stream[WindowResult[K, dict[str, Any]]]: ...

    def aggregate(
        self,
        create: Any = None,
        add: Any = None,
        result: Any = None,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
        **aggregates: Any,
    ) -> Stream[WindowResult[K, Any]]:
        """Aggregates each window by named aggregates in one pass, or with an accumulator of your own.

        Args:
            create: returns a new accumulator.
            add: called with (accumulator, value); returns the new accumulator, or None if it has changed it in place.
            result: turns the accumulator into the value of the window; None for the accumulator itself.
            aggregates: aggregates of ``clonos.agg``, by the names that they have in the value, a dict.

        Raises:
            InvalidJob: something is no aggregate.

        Example::

            stream.window(Tumbling("1min")).aggregate(n=count(), total=sum_("price"), top=top_k(3, by="price"))
            stream.window(Tumbling("1min")).aggregate(list, list.append)  # all values of each window
        """
        aggregation: Aggregation[Any, Any]
        if create is None and add is None and result is None:
            aggregation = named_of(name, aggregates)
        elif aggregates:
            problem = "gets both functions of an accumulator and named aggregates"
            raise InvalidJob(name or "aggregate", problem, "Name all: own=aggregate(create, add), from clonos.agg.")
        else:
            aggregation = Custom(create, add, None, result)
        return Stream(self._graph, self._window("aggregate", aggregation, name, parallelism, standby))

    def _window(
        self,
        what: str,
        aggregation: Aggregation[Any, Any],
        name: str | None,
        parallelism: int | None,
        standby: StandbyMode | None,
    ) -> tuple[StepInput, ...]:
        options = {"name": name, "parallelism": parallelism, "effects": False, "standby": standby}
        size_ns = self._kind.size_ns
        state = [("window", str(self._kind))]
        if isinstance(aggregation, Named):
            state.append(("aggregates", repr(aggregation)))
        elif isinstance(aggregation, Sum) and isinstance(aggregation.of, str):
            state.append(("field", repr(aggregation.of)))
        return self._step(
            f"window_{what}",
            lambda step: partial(Window, step, size_ns, window_aggregate(aggregation)),
            options,
            tuple(each.function for each in aggregation.functions),
            tuple(each.arguments for each in aggregation.functions),
            runs_user_code=what != "count",
            state=tuple(state),
            key_field=WindowResult._fields[0],
            ignores_order=aggregation.ignores_order,
            has_times=False,
        )
