"""Streams that are partitioned by key: state, timers and windows of each key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from clonos.api.aggregating import KeyedAggregating
from clonos.api.checks.split_checks import taken_split
from clonos.api.common import Common, CommonOfSplit, CommonWithEffects
from clonos.api.graph_errors import InvalidJob
from clonos.api.joining.connected import ConnectedStreams
from clonos.api.joining.keyed_joins import KeyedJoins
from clonos.api.step import AnySink
from clonos.api.steps import GraphBuilder
from clonos.api.stream import ProcessFunction, Stream
from clonos.api.transforms.calling import KeyedCalling, check_count
from clonos.api.transforms.folding import KeyedFolding
from clonos.api.transforms.keyed_choosing import KeyedChoosing
from clonos.api.window_step import AnyTrigger, window_settings
from clonos.api.windows import LastRecords, WindowKind
from clonos.operators.emission_times import Emission
from clonos.operators.event_time.durations import Duration
from clonos.operators.facts import plain
from clonos.operators.steps import keyed
from clonos.operators.steps.totals import count
from clonos.operators.tags import Tag
from clonos.operators.windows.evictors import Evictor
from clonos.operators.windows.neighbours import Lag, Lead

if TYPE_CHECKING:
    from clonos.api.windowed import WindowedStream

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
State = TypeVar("State")


class KeyedStream(
    KeyedJoins[K, T],
    KeyedAggregating[K, T],
    KeyedCalling[K, T],
    KeyedChoosing[K, T],
    KeyedFolding[K, T],
    GraphBuilder,
    Generic[K, T],
):
    """Stream of records that is partitioned by key. Its methods take the keywords of ``Stream``."""

    @overload
    def stateful_map(
        self, function: Callable[[K, State | None, T], tuple[State | None, U]], **common: Unpack[CommonWithEffects]
    ) -> Stream[U]: ...

    @overload
    def stateful_map(
        self, function: Callable[[K, Any, T], tuple[Any, U]], **common: Unpack[CommonWithEffects]
    ) -> Stream[U]: ...

    def stateful_map(
        self, function: Callable[[K, Any, T], tuple[Any, U]], **common: Unpack[CommonWithEffects]
    ) -> Stream[U]:
        """Applies ``function(key, state, value) -> (state, result)`` to each record; one result per record.

        The state of a new key is None. Returning None as the state deletes the state of the key.
        """
        definition = plain(partial(keyed.StatefulMap, function=function), function)
        return Stream(self._graph, self._step("stateful_map", definition, common))

    def reduce(self, function: Callable[[T, T], T], **common: Unpack[CommonWithEffects]) -> Stream[tuple[K, T]]:
        """Combines the values of each key by ``function(so_far, value)``; emits (key, so_far) after each record."""
        definition = plain(partial(keyed.KeyedReduce, function=function), function)
        return Stream(self._graph, self._step("reduce", definition, common))

    def count(self, **common: Unpack[CommonOfSplit]) -> Stream[tuple[K, int]]:
        """Counts the records of each key, and emits (key, count so far) after each record.

        With ``split_hot_keys=True`` the tasks in front count the records of each batch first, so results come once for
        each key in a batch of these counts, as with ``aggregate(n=count(), emit=changes())``.
        """
        is_split = taken_split(common.get("name") or "count", common)
        definition = partial(count, is_split=True) if is_split else count
        return Stream(self._graph, self._step("count", definition, common))

    def process(
        self, function: ProcessFunction[T, U] | type[ProcessFunction[T, U]], **common: Unpack[CommonWithEffects]
    ) -> Stream[U]:
        """Runs a process function on each record. State and timers are those of ``context.key``.

        Raises:
            InvalidJob: ``function`` is no process function; the message says why.
        """
        return Stream(self._graph, self._process(function, True, common))

    def union(self, *others: KeyedStream[K, U]) -> KeyedStream[K, T | U]:
        """Merges this stream with others of the same job whose keys have the same meaning.

        Their records may be of other types. The order within each is kept.
        """
        return KeyedStream(self._graph, self._union(others))

    def connect(self, other: KeyedStream[K, U] | Stream[U]) -> ConnectedStreams[T, U]:
        """Connects this stream with another one, for a process function that takes the records of both.

        ``other`` has keys of the same meaning, or is broadcast: ``keyed.connect(rules.broadcast())``. State and timers
        are those of ``context.key``, whichever stream a record is from.

        Raises:
            InvalidJob: ``other`` is neither keyed nor broadcast, or belongs to another job.
        """
        return ConnectedStreams(self, other, True)

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
        """Writes the records, without their keys, to a sink. All records of one key are written by the same task.

        Args:
            flush: when rows leave for the sink: ``each(n)`` for every n rows of a task, ``every("5s")`` at full 5 s of
                its clock, ``at_end()`` when the input has ended. Until then they wait in the state of the task; what is
                left goes at the end. By default they go at once. A sink that shows rows with a checkpoint shows them
                with the next one.

        Raises:
            InvalidJob: this is not a sink, another step uses it, or ``flush`` means nothing to it.
        """
        self._sink(sink, flush, name, parallelism)

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
    ) -> WindowedStream[K, T]:
        """Assigns the records of each key to windows; call an aggregation of the returned stream next.

        On a stream with timestamps windows follow event time: a window ends when the watermark reaches its end.

        Args:
            kind: such as ``Tumbling("5s")``.
            lateness: how long a window still takes records after its end; each then gives a further result.
            late: side output of records that come later than that, which are left out with a warning otherwise.
            trigger: when windows emit: ``each(n)``, ``every("5s")`` by the clock, ``every_event_time("5s")``,
                ``at_end()`` or an object of a ``Trigger`` class. What a window has not emitted leaves at its end.
            early: when windows emit before their end, too; the same values as for ``trigger``.
            accumulate: True for further results of a window with all its records, False for those since the last one.
            evictor: ``last_values(n)`` or ``newest_values("10s")``, the values that stay when a window emits.

        Raises:
            InvalidJob: ``kind`` is not a kind of window, or another argument cannot be used on this stream.

        Example::

            words.key_by(lambda word: word).window(Tumbling("5s")).count()
        """
        from clonos.api.windowed import WindowedStream

        settings = window_settings(
            self,
            kind,
            is_keyed=True,
            lateness=lateness,
            late=late,
            trigger=trigger,
            early=early,
            accumulate=accumulate,
            evictor=evictor,
        )
        return WindowedStream(self._graph, self._inputs, settings)

    def last(
        self, count: int, *, every: int = 1, ttl: Duration | None = None, late: Tag[T] | None = None
    ) -> WindowedStream[K, T]:
        """Gives each record a window of the last ``count`` records of its key; call an aggregation of them next.

        They are in the order of their timestamps, so a record waits until the watermark has passed it; without
        timestamps they are in the order of arrival. The first windows of a key have fewer records.

        Args:
            every: the records of a key from one result to the next.
            ttl: after that long without a record a key is forgotten and begins anew, by timestamps, or by the causal
                clock on a stream without them. By default the last records of each key stay for ever.
            late: side output of records behind the watermark, which are left out with a warning otherwise.

        Raises:
            InvalidJob: ``count`` or ``every`` is not an int of at least 1.
            InvalidDuration: ``ttl`` is not a length of time.

        Example::

            readings.key_by("sensor").last(100, every=10).map_frames(fit)
        """
        return self.window(LastRecords(count, every, ttl), late=late)

    def lag(
        self, count: int = 1, *, late: Tag[T] | None = None, **common: Unpack[Common]
    ) -> Stream[tuple[T, T | None]]:
        """Gives pairs of each record and the one ``count`` records before it of its key; None where there is none.

        The order is that of timestamps, so a record waits until the watermark has passed it; those of equal timestamps,
        and all without timestamps, are in the order of arrival. The last ``count`` records of each key are kept.

        Args:
            late: side output of records behind the watermark, which are left out with a warning otherwise.

        Raises:
            InvalidJob: ``count`` is not an int of at least 1.

        Example::

            def change(pair):
                reading, before = pair
                return {**reading, "change": None if before is None else reading["celsius"] - before["celsius"]}

            readings.key_by("sensor").lag().map(change)
        """
        return Stream(self._graph, self._neighbours("lag", Lag, count, late, common))

    def lead(
        self, count: int = 1, *, late: Tag[T] | None = None, **common: Unpack[Common]
    ) -> Stream[tuple[T, T | None]]:
        """Gives pairs of each record and the one ``count`` records after it of its key, in the order of timestamps.

        A pair leaves with the later record and has its timestamp. At the end of the input those without one leave, with
        None. The arguments are those of ``lag``.

        Raises:
            InvalidJob: ``count`` is not an int of at least 1.

        Example::

            clicks.key_by("user").lead().map(lambda pair: {**pair[0], "next": pair[1] and pair[1]["page"]})
        """
        return Stream(self._graph, self._neighbours("lead", Lead, count, late, common))

    def _neighbours(self, kind: str, operator: type[Lag], count: Any, late: Any, common: Common) -> Any:
        step = common.get("name") or kind
        check_count(step, "count", count, 1)
        has_times = self._graph.have_same_times(step, self._inputs)
        if late is not None and (not isinstance(late, Tag) or not has_times):
            problem = f"gets late={late!r:.80}" if has_times else "has late records without timestamps"
            raise InvalidJob(step, problem, 'Give it a tag, late=Tag("late"), on a stream with timestamps.')
        definition = partial(operator.facts, count=count, late=None if late is None else late.name)
        return self._step(kind, definition, common)
