"""Base of all streams: the graph that they add steps to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

from clonos.api.graph import AnySink, JobGraph, Tap
from clonos.api.graph_errors import GraphRefused
from clonos.operators.operator import Operator
from clonos.operators.steps.process import Process

Following = Literal["hot", "passive"]
"""Kind of standbys: "hot" ones repeat each step of their task, "passive" ones apply its checkpoints."""


class GraphBuilder:
    """Base of all streams: a graph and the taps that the next step reads."""

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
            standby=options["standby"],
            **rest,
        )
        return (Tap(step.number),)

    def _process(self, function: Any, is_keyed: bool, options: dict[str, Any]) -> tuple[Tap, ...]:
        kind = "process"
        if not callable(getattr(function, "process", None)):
            raise GraphRefused(
                options["name"] or kind,
                f"gets {function!r:.100}, which has no method process(value, context)",
                "Give it a class with that method, or an instance of one.",
            )
        if isinstance(function, type):
            try:
                inspect.signature(function).bind()
            except TypeError as error:
                raise GraphRefused(
                    options["name"] or kind,
                    f"gets the class {function.__qualname__}, which cannot be created without arguments ({error})",
                    "Give it an instance: each incarnation of a task gets a copy of it.",
                ) from error
        return self._step(kind, lambda name: partial(Process, name, function, is_keyed), options, runs_user_code=True)

    def _sink(self, sink: AnySink, name: str | None, parallelism: int | None) -> None:
        self._graph.check_sink(name or "sink", sink)
        self._graph.add("sink", name, self._taps, parallelism=parallelism, sink=sink)

    def _union(self, others: Iterable[GraphBuilder]) -> tuple[Tap, ...]:
        taps = self._taps
        for other in others:
            if other._graph is not self._graph:
                raise GraphRefused("union", "joins streams of two jobs", "Both must come from one Job.")
            taps += other._taps
        return taps
