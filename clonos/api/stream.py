"""Streams: what a user writes a job with. Each method adds a step and gives the stream of its results.

Steps take by keyword ``name=`` (state is found by it in later versions of the job), ``parallelism=`` (its tasks, by
default the job's) and ``effects=True`` where the user's code changes something outside: a keeper then holds the log.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, overload

from clonos.api.faults import GraphRefused
from clonos.api.graph import AnySink, Exchange, JobGraph, KeyBy, Tap
from clonos.api.windows import Tumbling
from clonos.operators import aggregates, keyed, stateless
from clonos.operators.async_map import AsyncMap
from clonos.operators.operator import Operator
from clonos.operators.process import Context, Process
from clonos.operators.windows import Window, WindowResult

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")
T_contra = TypeVar("T_contra", contravariant=True)
State = TypeVar("State")


class ProcessFunction(Protocol[T_contra, U]):
    """What ``process`` takes: a class, or an object of one. May also have ``open(context)`` before the first record,
    ``on_timer(instant, context)`` for timers and ``close()``; attributes may be set until ``open`` has returned."""

    def process(self, value: T_contra, context: Context[Any, U], /) -> None:
        """Called for each record."""


class _Steps:
    """What streams have in common: a graph and the taps that they come from."""

    def __init__(self, graph: JobGraph, taps: tuple[Tap, ...]) -> None:
        self._graph = graph
        self._taps = taps

    def _step(
        self, kind: str, make: Callable[[str], Callable[[], Operator]], options: dict[str, Any], **rest: Any
    ) -> tuple[Tap, ...]:
        step = self._graph.add(
            kind,
            options["name"],
            self._taps,
            make=make,
            parallelism=options["parallelism"],
            has_effects=options["effects"],
            **rest,
        )
        return (Tap(step.number),)

    def _process(self, function: Any, is_keyed: bool, options: dict[str, Any]) -> tuple[Tap, ...]:
        kind = "process"
        if not callable(getattr(function, "process", None)):
            raise GraphRefused(
                options["name"] or kind,
                f"gets {function!r:.100}, which has no method process(value, context)",
                "Give it a class with that method, or an object of one.",
            )
        if isinstance(function, type):
            try:
                inspect.signature(function).bind()
            except TypeError as error:
                raise GraphRefused(
                    options["name"] or kind,
                    f"gets the class {function.__qualname__}, which cannot be made without arguments ({error})",
                    "Give it an object: each incarnation gets a copy of it.",
                ) from error
        return self._step(kind, lambda name: partial(Process, name, function, is_keyed), options, runs_user_code=True)

    def _union(self, others: Iterable[_Steps]) -> tuple[Tap, ...]:
        taps = self._taps
        for other in others:
            if other._graph is not self._graph:
                raise GraphRefused("union", "joins streams of two jobs", "Both must come from one Job.")
            taps += other._taps
        return taps


class Stream(_Steps, Generic[T]):
    """Records without a key."""

    def map(
        self,
        function: Callable[[T], U],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
    ) -> Stream[U]:
        """One result a record."""
        options = {"name": name, "parallelism": parallelism, "effects": effects}
        make = partial(stateless.Map, function)
        return Stream(self._graph, self._step("map", lambda _: make, options, runs_user_code=True, keeps_places=True))

    def filter(
        self,
        predicate: Callable[[T], object],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
    ) -> Stream[T]:
        """The records for which the predicate is true."""
        options = {"name": name, "parallelism": parallelism, "effects": effects}
        make = partial(stateless.Filter, predicate)
        return Stream(self._graph, self._step("filter", lambda _: make, options, runs_user_code=True))

    def flat_map(
        self,
        function: Callable[[T], Iterable[U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
    ) -> Stream[U]:
        """Any number of results a record."""
        options = {"name": name, "parallelism": parallelism, "effects": effects}
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
    ) -> Stream[U]:
        """One result a record, for functions that wait for the world: up to ``capacity`` run at once, in threads.

        What the function returns or raises is recorded as a whole, so it may do what it likes inside; a function with
        a parameter ``idempotency_key`` is given one, which is the same when a failure makes the call a second time.
        ``ordered``: results come in the order of the records; otherwise as they arrive.
        """
        options = {"name": name, "parallelism": parallelism, "effects": False}
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
    ) -> Stream[dict[str, Any]]:
        """A ``pyarrow.RecordBatch`` for a ``pyarrow.RecordBatch``, of any length; where it is cut is not to matter.

        The stream must be one of columns: of a source that reads columns, or of another map_batches. Steps on rows
        that follow get each record as a dict.
        """
        options = {"name": name, "parallelism": parallelism, "effects": effects}
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
    ) -> Stream[U]:
        """Runs a process function. ``context.key`` is None here: state and timers belong to the task."""
        options = {"name": name, "parallelism": parallelism, "effects": effects}
        return Stream(self._graph, self._process(function, False, options))

    def sink(self, sink: AnySink, *, name: str | None = None, parallelism: int | None = None) -> None:
        """Where records leave the job. A sink object is used once: several streams come to one sink by ``union``."""
        self._graph.check_sink(name or "sink", sink)
        self._graph.add("sink", name, self._taps, parallelism=parallelism, sink=sink)


class KeyedStream(_Steps, Generic[K, T]):
    """Records with a key."""

    @overload
    def stateful_map(
        self,
        function: Callable[[K, State | None, T], tuple[State | None, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
    ) -> Stream[U]: ...

    @overload
    def stateful_map(
        self,
        function: Callable[[K, Any, T], tuple[Any, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
    ) -> Stream[U]: ...

    def stateful_map(
        self,
        function: Callable[[K, Any, T], tuple[Any, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
    ) -> Stream[U]:
        """``function(key, state, value) -> (state, result)``: the first state of a key is None, and None forgets it."""
        options = {"name": name, "parallelism": parallelism, "effects": effects}
        make = partial(partial, keyed.StatefulMap, function=function)
        return Stream(self._graph, self._step("stateful_map", make, options, runs_user_code=True))

    def reduce(
        self,
        function: Callable[[T, T], T],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
    ) -> Stream[tuple[K, T]]:
        """After each record (key, all values so far taken together): ``function(so far, value)``."""
        options = {"name": name, "parallelism": parallelism, "effects": effects}
        make = partial(partial, keyed.Reduce, function=function)
        return Stream(self._graph, self._step("reduce", make, options, runs_user_code=True))

    def count(self, *, name: str | None = None, parallelism: int | None = None) -> Stream[tuple[K, int]]:
        """After each record (key, number of its records so far)."""
        options = {"name": name, "parallelism": parallelism, "effects": False}
        make = partial(partial, keyed.RunningCount)
        return Stream(self._graph, self._step("count", make, options))

    def process(
        self,
        function: ProcessFunction[T, U] | type[ProcessFunction[T, U]],
        *,
        name: str | None = None,
        parallelism: int | None = None,
        effects: bool = False,
    ) -> Stream[U]:
        """Runs a process function. State and timers are those of ``context.key``."""
        options = {"name": name, "parallelism": parallelism, "effects": effects}
        return Stream(self._graph, self._process(function, True, options))

    def union(self, *others: KeyedStream[K, T]) -> KeyedStream[K, T]:
        """The records of several streams with keys of one kind, each stream's in its order."""
        return KeyedStream(self._graph, self._union(others))

    def window(self, kind: Tumbling) -> WindowedStream[K, T]:
        """Windows of each key; say next what to make of them."""
        if not isinstance(kind, Tumbling):
            raise GraphRefused("window", f"gets {kind!r:.100}", 'Give it a kind of window, such as Tumbling("5s").')
        return WindowedStream(self._graph, self._taps, kind)


class WindowedStream(_Steps, Generic[K, T]):
    """Windows of each key. Results come when a window ends, and at the end of the input."""

    def __init__(self, graph: JobGraph, taps: tuple[Tap, ...], kind: Tumbling) -> None:
        super().__init__(graph, taps)
        self._kind = kind

    def count(self, *, name: str | None = None, parallelism: int | None = None) -> Stream[WindowResult[K, int]]:
        """The number of records."""
        return Stream(self._graph, self._window("count", aggregates.Count(), name, parallelism, False))

    @overload
    def sum(
        self, of: None = None, *, name: str | None = None, parallelism: int | None = None
    ) -> Stream[WindowResult[K, T]]: ...

    @overload
    def sum(
        self, of: Callable[[T], V], *, name: str | None = None, parallelism: int | None = None
    ) -> Stream[WindowResult[K, V]]: ...

    @overload
    def sum(
        self, of: str, *, name: str | None = None, parallelism: int | None = None
    ) -> Stream[WindowResult[K, Any]]: ...

    def sum(self, of: Any = None, *, name: str | None = None, parallelism: int | None = None) -> Any:
        """The sum of the values, of what a function gives for each, or of a field of dicts or a column."""
        return Stream(self._graph, self._window("sum", aggregates.Sum(of), name, parallelism, True))

    def reduce(
        self, function: Callable[[T, T], T], *, name: str | None = None, parallelism: int | None = None
    ) -> Stream[WindowResult[K, T]]:
        """The values taken together two by two: ``function(so far, value)``."""
        return Stream(self._graph, self._window("reduce", aggregates.Reduce(function), name, parallelism, True))

    @overload
    def aggregate(
        self,
        create: Callable[[], A],
        add: Callable[[A, T], A | None],
        *,
        name: str | None = None,
        parallelism: int | None = None,
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
    ) -> Stream[WindowResult[K, V]]: ...

    def aggregate(
        self,
        create: Callable[[], Any],
        add: Callable[[Any, T], Any],
        result: Callable[[Any], Any] | None = None,
        *,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream[WindowResult[K, Any]]:
        """An accumulator of your own, made by ``create`` and turned into the window's value by ``result``.

        ``add(accumulator, value)`` answers the new accumulator, or None when it has changed the one that it got:
        ``aggregate(list, list.append)`` collects the values.
        """
        aggregate = aggregates.Accumulate(create, add, result)
        return Stream(self._graph, self._window("aggregate", aggregate, name, parallelism, True))

    def _window(
        self,
        what: str,
        aggregate: aggregates.Aggregate,
        name: str | None,
        parallelism: int | None,
        runs_user_code: bool,
    ) -> tuple[Tap, ...]:
        options = {"name": name, "parallelism": parallelism, "effects": False}
        size_ns = self._kind.size_ns
        return self._step(
            f"window_{what}",
            lambda step: partial(Window, step, size_ns, aggregate),
            options,
            runs_user_code=runs_user_code,
        )
