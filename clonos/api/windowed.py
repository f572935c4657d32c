"""Windows of a stream and their aggregations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, TypeVar, Unpack, overload

from clonos.api.aggregating import NAME_THEM, named_of
from clonos.api.checks.split_checks import check_split, taken_split
from clonos.api.columns.column_checks import check_aggregates
from clonos.api.columns.schemas import declared_columns
from clonos.api.common import Common, CommonOfSplit, CommonWithEffects, StandbyMode
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import StepInput
from clonos.api.step_graph import StepGraph
from clonos.api.steps import GraphBuilder
from clonos.api.stream import Stream
from clonos.api.window_step import WindowSettings
from clonos.core.values.copying import copied
from clonos.operators.aggregates.aggregate import Aggregation, Named
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.custom import Custom, Reduction
from clonos.operators.aggregates.numeric import Sum
from clonos.operators.aggregates.values import Collect
from clonos.operators.columnar.row_forms import RECORDS
from clonos.operators.windows.gathered import GatheredValues
from clonos.operators.windows.window_results import Window, WindowResult

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


class WindowedStream(GraphBuilder, Generic[K, T]):
    """Windows of each key of a stream, or of a stream without keys, not yet aggregated.

    An aggregation emits one ``WindowResult`` per key and window when the window ends; open windows are emitted when the
    input ends. The methods take the keywords of ``Stream``; ``count``, ``sum``, ``reduce`` and ``aggregate`` also take
    ``split_hot_keys``.
    """

    def __init__(self, graph: StepGraph, inputs: tuple[StepInput, ...], settings: WindowSettings) -> None:
        super().__init__(graph, inputs)
        self._settings = settings

    def count(self, **common: Unpack[CommonOfSplit]) -> Stream[WindowResult[K, int]]:
        """Counts the records of each window."""
        return Stream(self._graph, self._window("count", Count(), common))

    @overload
    def sum(self, of: None = None, **common: Unpack[CommonOfSplit]) -> Stream[WindowResult[K, T]]: ...

    @overload
    def sum(self, of: Callable[[T], V], **common: Unpack[CommonOfSplit]) -> Stream[WindowResult[K, V]]: ...

    @overload
    def sum(self, of: str, **common: Unpack[CommonOfSplit]) -> Stream[WindowResult[K, Any]]: ...

    def sum(self, of: Any = None, **common: Unpack[CommonOfSplit]) -> Any:
        """Sums the values of each window: the records, or ``of`` each record.

        ``of`` is a function of the record, or the name of a field of dicts or of a column.
        """
        return Stream(self._graph, self._window("sum", Sum(of), common))

    def reduce(self, function: Callable[[T, T], T], **common: Unpack[CommonOfSplit]) -> Stream[WindowResult[K, T]]:
        """Combines the values of each window by ``function(so_far, value)``."""
        return Stream(self._graph, self._window("reduce", Reduction(function), common))

    @overload
    def aggregate(
        self,
        create: Callable[[], A],
        add: Callable[[A, T], A | None],
        *,
        merge: Callable[[A, A], A | None] | None = None,
        **common: Unpack[CommonOfSplit],
    ) -> Stream[WindowResult[K, A]]: ...

    @overload
    def aggregate(
        self,
        create: Callable[[], A],
        add: Callable[[A, T], A | None],
        result: Callable[[A], V],
        *,
        merge: Callable[[A, A], A | None] | None = None,
        **common: Unpack[CommonOfSplit],
    ) -> Stream[WindowResult[K, V]]: ...

    @overload
    def aggregate(
        self,
        *,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
        split_hot_keys: bool = False,
        **aggregates: Aggregation[T, Any],
    ) -> Stream[WindowResult[K, dict[str, Any]]]: ...

    def aggregate(
        self,
        create: Any = None,
        add: Any = None,
        result: Any = None,
        *,
        merge: Any = None,
        name: str | None = None,
        parallelism: int | None = None,
        standby: StandbyMode | None = None,
        split_hot_keys: bool = False,
        **aggregates: Any,
    ) -> Stream[WindowResult[K, Any]]:
        """Aggregates each window by named aggregates in one pass, or with an accumulator of your own.

        Args:
            create: returns a new accumulator.
            add: called with (accumulator, value); returns the new accumulator, or None if it has changed it in place.
            result: turns the accumulator into the value of the window; None for the accumulator itself.
            merge: called with two accumulators, the second one of a later pane or session; returns that of both, or
                None if it has changed the first one in place. Without it, sliding and session windows and windows with
                lateness keep all their values until they emit.
            split_hot_keys: whether the tasks in front aggregate the records of each batch first, so that a key with a
                large share of the records does not limit the task that it belongs to. Windows over columns do so
                without it where they can.
            aggregates: aggregates of ``clonos.agg``, by the names that they have in the value, a dict.

        Raises:
            InvalidJob: something is no aggregate, or it cannot be split.

        Example::

            stream.window(Tumbling("1min")).aggregate(n=count(), total=sum_("price"), top=top_k(3, by="price"))
            stream.window(Tumbling("1min")).aggregate(list, list.append)  # all values of each window
        """
        common = CommonOfSplit(name=name, parallelism=parallelism, standby=standby, split_hot_keys=split_hot_keys)
        aggregation: Aggregation[Any, Any]
        if isinstance(create, Aggregation):
            raise InvalidJob(name or "aggregate", f"gets {create!r:.80} without a name", NAME_THEM)
        if create is None and add is None and result is None and merge is None:
            aggregation = named_of(name, aggregates)
        elif aggregates:
            problem = "gets both functions of an accumulator and named aggregates"
            raise InvalidJob(name or "aggregate", problem, "Name all: own=aggregate(create, add), from clonos.agg.")
        else:
            aggregation = Custom(create, add, merge, result)
        return Stream(self._graph, self._window("aggregate", aggregation, common))

    def fold(
        self, initial: A, function: Callable[[A, T], A | None], **common: Unpack[Common]
    ) -> Stream[WindowResult[K, A]]:
        """Folds the values of each window, beginning with a copy of ``initial``, in the order of ``apply``.

        ``function(so_far, value)`` returns the next value, or None if it has changed the given one in place. Sliding
        and session windows and windows with lateness keep all their values until they emit.
        """
        aggregation = Custom(partial(copied, initial), function, None, None)
        return Stream(self._graph, self._window("fold", aggregation, common))

    def apply(self, function: Callable[[K, Window, list[T]], Iterable[U]], **common: Unpack[Common]) -> Stream[U]:
        """Calls ``function(key, window, values)`` when a window ends, with all its values.

        They are in order of arrival: in sliding windows by pane, then by arrival; in sessions that have merged, those
        of the session that began earlier come first. The results of ``function``, any number of them, are the records
        of the stream.

        Example::

            def longest_first(key, window, values):
                return [(key, window.start, value) for value in sorted(values, key=len, reverse=True)]

            lines.key_by(first_word).window(Tumbling("1min")).apply(longest_first)
        """
        return Stream(self._graph, self._window("apply", GatheredValues(), common, function))

    def map_frames(
        self, function: Callable[..., Any], *, schema: Any = None, **common: Unpack[CommonWithEffects]
    ) -> Stream[dict[str, Any]]:
        """Calls ``function(frame)`` when a window ends, with all its records as one frame.

        A parameter that is annotated as ``pandas.DataFrame``, ``polars.DataFrame`` or ``pyarrow.Table`` gets such a
        frame, any other a ``pyarrow.RecordBatch``. A function with two parameters is called with ``(key, frame)``, one
        with three with ``(key, window, frame)``. The records have names of fields: they are columns, dicts, NamedTuples
        or dataclasses. Their order is that of ``apply``.

        It returns a frame of any length and columns, whose rows are the records of the stream: columns, or dicts in
        steps on rows. If it raises, the window is an error, with its records.

        ``schema``: the columns of the results, as for ``map_batches``; ``-> Annotated[pandas.DataFrame, schema]`` says
        the same.

        Raises:
            InvalidJob: the schema says no columns.

        Example::

            def smooth(frame: pandas.DataFrame) -> pandas.DataFrame:
                return frame.assign(mean=frame["celsius"].rolling(3).mean())

            readings.key_by("sensor").window(Tumbling("1h")).map_frames(smooth)
        """
        from clonos.operators.columnar.map_frames import MapFrames  # loads pyarrow

        step = common.get("name")
        columns = declared_columns(step or "map_frames", function, schema)
        gathering = Common(name=step and f"{step}.gather", standby=common.get("standby"))
        gathering["parallelism"] = common["parallelism"] = self._settings.checked_parallelism(
            step or "map_frames", common.get("parallelism")
        )
        gathered: Stream[Any] = Stream(self._graph, self._window("gather", Named({RECORDS: Collect(None)}), gathering))
        definition = partial(MapFrames.facts, function=function, declared=columns)
        return Stream(self._graph, gathered._step("map_frames", definition, common))

    def _window(
        self,
        what: str,
        aggregation: Aggregation[Any, Any],
        common: Common,
        apply: Any = None,
    ) -> tuple[StepInput, ...]:
        settings = self._settings
        kind = f"window_{what}"
        name = common.get("name") or kind
        check_aggregates(self._graph, self._inputs, name, aggregation, has_logs=True)
        common["parallelism"] = settings.checked_parallelism(name, common.get("parallelism"))
        is_split = taken_split(name, common)
        if is_split:
            check_split(name, aggregation, settings.reason_not_split)
        definition = partial(settings.facts, what=what, aggregation=aggregation, apply=apply, is_split=is_split)
        return self._step(kind, definition, common)
