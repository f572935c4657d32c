"""Streams: what a user writes a job with. Each method adds a step and gives the stream of its results.

Steps take by keyword ``name=`` (state is found by it in later versions of the job), ``parallelism=`` (its tasks, by
default the job's), ``effects=True`` where the user's code changes something outside: a keeper then holds the log, and
``standby="hot"`` where a standby shall follow it step by step, to go on at once where it has died.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from clonos.api.graph import AnySink, Exchange, KeyBy, Tap
from clonos.api.graph_errors import GraphRefused
from clonos.api.steps import Following, GraphBuilder
from clonos.api.windows import Tumbling
from clonos.operators.steps import keyed, stateless
from clonos.operators.steps.async_map import AsyncMap
from clonos.operators.steps.process import Context

if TYPE_CHECKING:
    from clonos.api.windowed import WindowedStream

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
T_contra = TypeVar("T_contra", contravariant=True)
State = TypeVar("State")


class ProcessFunction(Protocol[T_contra, U]):
    """What ``process`` takes: a class, or an object of one. May also have ``open(context)`` before the first record,
    ``on_timer(instant, context)`` for timers and ``close()``; attributes may be set until ``open`` has returned."""

    def process(self, value: T_contra, context: Context[Any, U], /) -> None:
        """Called for each record."""


class Stream(GraphBuilder, Generic[T]):
    """Records without a key."""

    def map(
        self,
        function: Callable[[T], U],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[U]:
        """One result a record."""
        options = {"name": name, "parallelism": parallelism, "effects": effects, "standby": standby}
        make = partial(stateless.Map, function)
        return Stream(self._graph, self._step("map", lambda _: make, options, runs_user_code=True, keeps_places=True))

    def filter(
        self,
        predicate: Callable[[T], object],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[T]:
        """The records for which the predicate is true."""
        options = {"name": name, "parallelism": parallelism, "effects": effects, "standby": standby}
        make = partial(stateless.Filter, predicate)
        return Stream(self._graph, self._step("filter", lambda _: make, options, runs_user_code=True, keeps_rows=True))

    def flat_map(
        self,
        function: Callable[[T], Iterable[U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[U]:
        """Any number of results a record."""
        options = {"name": name, "parallelism": parallelism, "effects": effects, "standby": standby}
        make = partial(stateless.FlatMap, function)
        return Stream(self._graph, self._step("flat_map", lambda _: make, options, runs_user_code=True))

    def map_async(
        self,
        function: Callable[..., U],
        *,
        capacity: int = 16,
        ordered: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
        standby: Following | None = None,
    ) -> Stream[U]:
        """One result a record, for functions that wait for the world: up to ``capacity`` run at once, in threads.

        What the function returns or raises is recorded as a whole, so it may do what it likes inside; a function with
        a parameter ``idempotency_key`` is given one, which is the same when a failure makes the call a second time.
        ``ordered``: results come in the order of the records; otherwise as they arrive.
        """
        options = {"name": name, "parallelism": parallelism, "effects": False, "standby": standby}
        if capacity < 1:
            raise GraphRefused(name or "map_async", f"has the capacity {capacity!r}", "Give a number from 1 on.")
        make = partial(partial, AsyncMap, function=function, capacity=capacity, is_ordered=ordered)
        return Stream(self._graph, self._step("map_async", make, options, runs_user_code=True))

    def map_batches(
        self,
        function: Callable[[Any], Any],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[dict[str, Any]]:
        """A ``pyarrow.RecordBatch`` for a ``pyarrow.RecordBatch``, of any length; where it is cut is not to matter.

        The stream must be one of columns: of a source that reads columns, or of another map_batches. Steps on rows
        that follow get each record as a dict.
        """
        options = {"name": name, "parallelism": parallelism, "effects": effects, "standby": standby}
        make = partial(stateless.MapBatches, function)
        flags = {"runs_user_code": True, "needs_columns": True, "gives_columns": True}
        return Stream(self._graph, self._step("map_batches", lambda _: make, options, **flags))

    @overload
    def key_by(self, key: Callable[[T], K], *, name: str | None = None) -> KeyedStream[K, T]: ...

    @overload
    def key_by(self, key: str, *, name: str | None = None) -> KeyedStream[Any, T]: ...

    def key_by(self, key: Any, *, name: str | None = None) -> KeyedStream[Any, Any]:
        """All records with one key go to one task, which keeps the state of the key.

        ``key``: a function of the record, or the name of a field of dicts or of a column. Keys are str, bytes, int,
        bool, None, UUID, date and tuples of them.
        """
        key_by = KeyBy(self._graph.take_name("key_by", name), key, name is not None)
        return KeyedStream(self._graph, tuple(Tap(tap.step, Exchange.HASH, key_by) for tap in self._taps))

    def union(self, *others: Stream[T]) -> Stream[T]:
        """The records of several streams, each stream's in its order."""
        return Stream(self._graph, self._union(others))

    def rebalance(self) -> Stream[T]:
        """Spreads records evenly over the tasks of the next step, one after the other."""
        return Stream(self._graph, tuple(Tap(tap.step, Exchange.REBALANCE) for tap in self._taps))

    def broadcast(self) -> Stream[T]:
        """Gives every record to every task of the next step."""
        return Stream(self._graph, tuple(Tap(tap.step, Exchange.BROADCAST) for tap in self._taps))

    def process(
        self,
        function: ProcessFunction[T, U] | type[ProcessFunction[T, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[U]:
        """Runs a process function. ``context.key`` is None here: state and timers belong to the task."""
        options = {"name": name, "parallelism": parallelism, "effects": effects, "standby": standby}
        return Stream(self._graph, self._process(function, False, options))

    def sink(self, sink: AnySink, *, name: str | None = None, parallelism: int | None = None) -> None:
        """Where records leave the job. A sink object is used once: several streams come to one sink by ``union``."""
        self._sink(sink, name, parallelism)


class KeyedStream(GraphBuilder, Generic[K, T]):
    """Records with a key."""

    @overload
    def stateful_map(
        self,
        function: Callable[[K, State | None, T], tuple[State | None, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[U]: ...

    @overload
    def stateful_map(
        self,
        function: Callable[[K, Any, T], tuple[Any, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[U]: ...

    def stateful_map(
        self,
        function: Callable[[K, Any, T], tuple[Any, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[U]:
        """``function(key, state, value) -> (state, result)``: the first state of a key is None, and None forgets it."""
        options = {"name": name, "parallelism": parallelism, "effects": effects, "standby": standby}
        make = partial(partial, keyed.StatefulMap, function=function)
        return Stream(self._graph, self._step("stateful_map", make, options, runs_user_code=True))

    def reduce(
        self,
        function: Callable[[T, T], T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[tuple[K, T]]:
        """After each record (key, all values so far taken together): ``function(so far, value)``."""
        options = {"name": name, "parallelism": parallelism, "effects": effects, "standby": standby}
        make = partial(partial, keyed.KeyedReduce, function=function)
        return Stream(self._graph, self._step("reduce", make, options, runs_user_code=True, gives_key=""))

    def count(
        self, *, name: str | None = None, parallelism: int | None = None, standby: Following | None = None
    ) -> Stream[tuple[K, int]]:
        """After each record (key, number of its records so far)."""
        options = {"name": name, "parallelism": parallelism, "effects": False, "standby": standby}
        make = partial(partial, keyed.RunningCount)
        return Stream(self._graph, self._step("count", make, options, gives_key=""))

    def process(
        self,
        function: ProcessFunction[T, U] | type[ProcessFunction[T, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
        standby: Following | None = None,
    ) -> Stream[U]:
        """Runs a process function. State and timers are those of ``context.key``."""
        options = {"name": name, "parallelism": parallelism, "effects": effects, "standby": standby}
        return Stream(self._graph, self._process(function, True, options))

    def union(self, *others: KeyedStream[K, T]) -> KeyedStream[K, T]:
        """The records of several streams with keys of one kind, each stream's in its order."""
        return KeyedStream(self._graph, self._union(others))

    def sink(self, sink: AnySink, *, name: str | None = None, parallelism: int | None = None) -> None:
        """Where the records leave the job, without their keys: all of one key from one task."""
        self._sink(sink, name, parallelism)

    def window(self, kind: Tumbling) -> WindowedStream[K, T]:
        """Windows of each key; say next what to make of them."""
        if not isinstance(kind, Tumbling):
            raise GraphRefused("window", f"gets {kind!r:.100}", 'Give it a kind of window, such as Tumbling("5s").')
        from clonos.api.windowed import WindowedStream

        return WindowedStream(self._graph, self._taps, kind)
