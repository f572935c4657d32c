"""Streams: each method adds a step to the job and returns the stream of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, Unpack, overload

from clonos.api.aggregating import Aggregating
from clonos.api.columns.column_checks import check_key
from clonos.api.columns.schemas import declared_columns
from clonos.api.common import Common, CommonWithEffects
from clonos.api.event_time import AnyTimestamps
from clonos.api.joining.connected import ConnectedStreams
from clonos.api.joining.stream_joins import StreamJoins
from clonos.api.key_by import KeyBy, checked_key
from clonos.api.step import AnySink, Exchange
from clonos.api.steps import GraphBuilder
from clonos.api.transforms.calling import Calling, add_parallel
from clonos.api.transforms.choosing import Choosing
from clonos.api.transforms.enriching import Enriching
from clonos.api.transforms.folding import Folding
from clonos.api.transforms.routing import Routing
from clonos.api.transforms.selecting import Condition, Selecting, add_condition, expression_of
from clonos.api.window_step import AnyTrigger, window_settings
from clonos.api.windows import WindowKind
from clonos.operators.emission_times import Emission
from clonos.operators.event_time.durations import Duration
from clonos.operators.facts import plain
from clonos.operators.steps import stateless
from clonos.operators.steps.context import Context
from clonos.operators.tags import Tag
from clonos.operators.windows.evictors import Evictor

if TYPE_CHECKING:
    from clonos.api.keyed_stream import KeyedStream
    from clonos.api.windowed import WindowedStream

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
T_contra = TypeVar("T_contra", contravariant=True)


class ProcessFunction(Protocol[T_contra, U]):
    """Function with state and timers, for ``Stream.process`` and ``KeyedStream.process``.

    Give the class or an instance of it; each incarnation of a task has its own copy. Optional methods are
    ``open(context)``, called before the first record, ``on_timer(timestamp, context)`` and
    ``on_event_timer(timestamp, context)``, called when a timer of the clock or of event time fires, with its time as an
    aware datetime, and ``close()``.
    Set attributes in ``__init__`` or ``open`` only: declared state survives a failure, and setting an attribute later
    raises ``AttributeSetLate`` because it would not.

    Example::

        class Deduplicate:
            seen = ValueState("seen", default=False)

            def process(self, value, context):
                seen = context.state(self.seen)
                if not seen.value:
                    seen.value = True
                    context.emit(value)
    """

    def process(self, value: T_contra, context: Context[Any, U], /) -> None:
        """Processes one record: reads and changes state, sets timers, emits any number of results."""


class Stream(
    StreamJoins[T],
    Aggregating[T],
    Choosing[T],
    Routing[T],
    Folding[T],
    Calling[T],
    Enriching[T],
    Selecting[T],
    GraphBuilder,
    Generic[T],
):
    """Stream of records without a key. Each method adds a step to the job and returns the stream of its results.

    Most methods take the options of ``Common``; those that call a function of yours take ``effects``, too. ``par``: the
    calls of one task that run at once, in threads; results stay in the order of the records.
    """

    def map(
        self, function: Callable[[T], U], *, par: int | None = None, **common: Unpack[CommonWithEffects]
    ) -> Stream[U]:
        """Applies ``function`` to each record; one result per record."""
        if par is not None:
            return Stream(self._graph, add_parallel(self, "map", function, par, common))
        return Stream(self._graph, self._step("map", plain(partial(stateless.Map, function), function), common))

    @overload
    def filter(
        self, predicate: Callable[[T], object], *, par: int | None = None, **common: Unpack[CommonWithEffects]
    ) -> Stream[T]: ...

    @overload
    def filter(self, predicate: Condition, **common: Unpack[Common]) -> Stream[T]: ...

    def filter(self, predicate: Any, *, par: int | None = None, **common: Unpack[CommonWithEffects]) -> Stream[T]:
        """Keeps the records for which ``predicate`` is true: a function, or on a stream of columns an expression.

        A condition of an expression that is null drops the record.

        Raises:
            ColumnsNeeded, InvalidExpression: the stream is one of rows, or its columns do not fit the expression.
            InvalidJob: the step has an expression and ``par``.
        """
        condition = expression_of(predicate)
        if condition is not None:
            return Stream(self._graph, add_condition(self, condition, par, common))
        if par is not None:
            return Stream(self._graph, add_parallel(self, "filter", predicate, par, common))
        return Stream(self._graph, self._step("filter", plain(partial(stateless.Filter, predicate), predicate), common))

    def flat_map(
        self, function: Callable[[T], Iterable[U]], *, par: int | None = None, **common: Unpack[CommonWithEffects]
    ) -> Stream[U]:
        """Applies ``function`` to each record; every item of the returned iterable is a result."""
        if par is not None:
            return Stream(self._graph, add_parallel(self, "flat_map", function, par, common))
        return Stream(
            self._graph, self._step("flat_map", plain(partial(stateless.FlatMap, function), function), common)
        )

    def map_batches(
        self,
        function: Callable[[Any], Any],
        *,
        schema: Any = None,
        rows: int | None = None,
        within: Duration | None = None,
        **common: Unpack[CommonWithEffects],
    ) -> Stream[dict[str, Any]]:
        """Applies a function to each batch, a ``pyarrow.RecordBatch``.

        A parameter that is annotated as ``pandas.DataFrame``, ``polars.DataFrame`` or ``pyarrow.Table`` gets such a
        frame. The result is a batch, or any table or frame that speaks Arrow's C stream (those of pyarrow, pandas,
        Polars and DuckDB do); it may have another length. Batch boundaries are arbitrary: the function must not depend
        on them. The stream must be one of columns, that is of a column source such as ``files.parquet`` or of another
        ``map_batches``. Steps on rows that follow get each record as a dict.

        ``schema``: the columns of the results, as a ``pyarrow.Schema``, or a dataclass, NamedTuple or TypedDict with a
        type per column. The annotation ``-> Annotated[pandas.DataFrame, schema]`` of the function says the same.
        Without them, steps with state that choose their form by the types of columns work on rows.

        ``rows``: the records of a batch, which wait for it in the state of the task, for a function with a high cost
        per call such as a model. ``within``: the longest time that they wait; without it, until the input ends.

        Raises:
            InvalidJob: the schema says no columns, or ``rows`` and ``within`` say no size of a batch.

        Example::

            rows.map_batches(predict, rows=4096, within="200ms")
        """
        step = common.get("name") or "map_batches"
        columns = declared_columns(step, function, schema)
        stream = self if rows is None and within is None else Stream(self._graph, self._gathered(rows, within, common))
        definition = partial(stateless.MapBatches.facts, function=function, declared=columns)
        return Stream(self._graph, stream._step("map_batches", definition, common))

    @overload
    def key_by(self, key: Callable[[T], K], *, name: str | None = None) -> KeyedStream[K, T]: ...

    @overload
    def key_by(self, key: str, *, name: str | None = None) -> KeyedStream[Any, T]: ...

    @overload
    def key_by(
        self, key: str, second: str, /, *more: str, name: str | None = None
    ) -> KeyedStream[tuple[Any, ...], T]: ...

    def key_by(self, key: Any, *more: str, name: str | None = None) -> KeyedStream[Any, Any]:
        """Partitions the stream by key: all records of one key go to the same task, which keeps the key's state.

        ``key`` is a function of the record, or the name of a field of dicts or objects, or of a column; several names
        make a tuple. A key is a str, bytes, int, bool, None, UUID, date, a datetime with a time zone, a member of a
        registered enum, or a tuple of these.

        Raises:
            InvalidJob: ``key`` is neither, functions and names are mixed, or a column is missing or cannot be a key.

        Example::

            bids.key_by("bidder", "auction").count()
        """
        from clonos.api.keyed_stream import KeyedStream

        checked = checked_key(name or "key_by", (key, *more))
        key_by = KeyBy(self._graph.reserve_name("key_by", name), checked, name is not None)
        check_key(self._graph, self._inputs, key_by.name, key_by.fields)
        return KeyedStream(self._graph, self._inputs_by(Exchange.HASH, key_by))

    def window(
        self,
        kind: WindowKind,
        *,
        lateness: Duration | None = None,
        late: Tag[T] | None = None,
        trigger: AnyTrigger | None = None,
        early: AnyTrigger | None = None,
        accumulate: bool = True,
        evictor: Evictor | None = None,
    ) -> WindowedStream[None, T]:
        """Assigns all records to windows, without a key, in a single task; the arguments are those of keyed streams.

        The key of the results is None. Prefer ``key_by`` where there is a key: its windows are spread over tasks.

        Raises:
            InvalidJob: ``kind`` is not a kind of window, or another argument cannot be used on this stream.
        """
        from clonos.api.windowed import WindowedStream

        settings = window_settings(
            self,
            kind,
            is_keyed=False,
            lateness=lateness,
            late=late,
            trigger=trigger,
            early=early,
            accumulate=accumulate,
            evictor=evictor,
        )
        return WindowedStream(self._graph, self._inputs, settings)

    def union(self, *others: Stream[U]) -> Stream[T | U]:
        """Merges this stream with others of the same job; their records may be of other types.

        The order within each stream is kept, that between streams is not.
        """
        return Stream(self._graph, self._union(others))

    def with_timestamps(self, timestamps: AnyTimestamps, *, name: str | None = None) -> Stream[T]:
        """Gives each record a timestamp, in place of an earlier one, and makes the watermarks of the stream from them.

        ``timestamps``: a ``Timestamps``, or only its first argument, with which a record behind the latest timestamp
        may be late. The watermark is that of all records of a task. At a source, use
        ``job.source(..., timestamps=...)``: it has a watermark per split, so splits may be far apart.

        Raises:
            InvalidJob: the timestamps cannot be used.
        """
        return Stream(self._graph, self._with_timestamps(timestamps, name))

    def side_output(self, tag: Tag[U]) -> Stream[U]:
        """Returns the stream of records that the step before passes to a side output, such as late records of windows.

        Raises:
            InvalidJob: the step before has no side outputs.
        """
        return Stream(self._graph, self._side_output(tag))

    def process(
        self, function: ProcessFunction[T, U] | type[ProcessFunction[T, U]], **common: Unpack[CommonWithEffects]
    ) -> Stream[U]:
        """Runs a process function on each record. ``context.key`` is None here: state and timers are those of the task.

        Raises:
            InvalidJob: ``function`` is no process function; the message says why.
        """
        return Stream(self._graph, self._process(function, False, common))

    def connect(self, other: Stream[U]) -> ConnectedStreams[T, U]:
        """Connects this stream with another one, for a process function that takes the records of both.

        ``other`` may be broadcast: ``stream.connect(rules.broadcast())``. All its records then reach every task.

        Raises:
            InvalidJob: the streams belong to two jobs.
        """
        return ConnectedStreams(self, other, False)

    def take(self, count: int = 10) -> list[T]:
        """Runs the job up to here, on child processes, and returns the first ``count`` rows, for notebooks.

        It ends when it has them or when the input ends. Steps with effects are executed like the others; sinks are not.

        Raises:
            InvalidJob: ``count`` is not an int of at least 1.
            JobError: the job fails.
        """
        return self._take(count)

    def sink(
        self,
        sink: AnySink,
        *,
        flush: Emission | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> None:
        """Writes the records to a sink.

        A sink object is used once: to write several streams to one sink, join them by ``union``.

        Args:
            flush: when rows leave for the sink: ``each(n)`` for every n rows of a task, ``every("5s")`` at full 5 s of
                its clock, ``at_end()`` when the input has ended. Until then they wait in the state of the task; what is
                left goes at the end. By default they go at once. A sink that shows rows with a checkpoint shows them
                with the next one.

        Raises:
            InvalidJob: this is not a sink, another step uses it, or ``flush`` means nothing to it.
        """
        self._sink(sink, flush, name, parallelism)
