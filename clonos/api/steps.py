"""Base of all streams: the graph that they add steps to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from clonos.api.graph import AnySink, Exchange, JobGraph, KeyBy, StepInput
from clonos.api.graph_errors import GraphRefused
from clonos.api.missing_methods import method_missing
from clonos.operators.operator import Operator
from clonos.operators.steps.process import Process

StandbyMode = Literal["hot", "passive"]
"""Kind of standbys: "hot" ones repeat each step of their task, "passive" ones apply its checkpoints."""


class GraphBuilder:
    """Base of all streams: a graph and the inputs that the next step reads."""

    def __init__(self, graph: JobGraph, inputs: tuple[StepInput, ...]) -> None:
        self._graph = graph
        self._inputs = inputs

    if not TYPE_CHECKING:  # a type checker must go on to report a missing method

        def __getattr__(self, attribute):
            raise method_missing(type(self), attribute)

    def _inputs_by(self, exchange: Exchange, key: KeyBy | None = None) -> tuple[StepInput, ...]:
        return tuple(StepInput(each.step, exchange, key) for each in self._inputs)

    def _step(
        self, kind: str, make: Callable[[str], Callable[[], Operator]], options: dict[str, Any], **rest: Any
    ) -> tuple[StepInput, ...]:
        step = self._graph.add(
            kind,
            options["name"],
            self._inputs,
            make=make,
            parallelism=options["parallelism"],
            has_effects=options["effects"],
            standby=options["standby"],
            **rest,
        )
        return (StepInput(step.number),)

    def _process(self, function: Any, is_keyed: bool, options: dict[str, Any]) -> tuple[StepInput, ...]:
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
        self._graph.add("sink", name, self._inputs, parallelism=parallelism, sink=sink)

    def _union(self, others: Iterable[GraphBuilder]) -> tuple[StepInput, ...]:
        inputs = self._inputs
        for other in others:
            if other._graph is not self._graph:
                raise GraphRefused("union", "joins streams of two jobs", "Both must come from one Job.")
            inputs += other._inputs
        return inputs
