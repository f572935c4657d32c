"""Base of all streams: the graph that they add steps to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from clonos.api.checks.flush_checks import check_flush
from clonos.api.checks.function_checks import check_process, uses
from clonos.api.checks.missing_methods import method_missing
from clonos.api.checks.wrong_ends import check_streams
from clonos.api.columns.column_checks import check_present
from clonos.api.common import Common
from clonos.api.event_time import AnyTimestamps, assigner_of
from clonos.api.graph_errors import InvalidJob, NotIterable, NotSubscriptable
from clonos.api.key_by import KeyBy
from clonos.api.step import AnySink, Exchange, StepInput
from clonos.api.step_graph import StepGraph
from clonos.core.model.plan import ANYWHERE, PlacementRule
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.emission_times import Emission
from clonos.operators.event_time.assign_timestamps import AssignTimestamps
from clonos.operators.event_time.durations import Duration, duration_ns
from clonos.operators.facts import Definition, plain
from clonos.operators.steps.context import GIVE_TIMESTAMPS
from clonos.operators.steps.process import Process
from clonos.operators.tags import Tag
from clonos.operators.transforms.flush import Flush, Gather
from clonos.operators.transforms.routed_outputs import Route

GATHERED_ROWS_MAX: Final = 1 << 20
"""Records that may wait for a batch of a function; they are in memory and in checkpoints."""


@explains_calls
class GraphBuilder:
    """Base of all streams: a graph and the inputs that the next step reads."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        explains_calls(cls)

    def __init__(self, graph: StepGraph, inputs: tuple[StepInput, ...]) -> None:
        self._graph = graph
        self._inputs = inputs

    if not TYPE_CHECKING:  # a type checker must go on to report a missing method

        def __getattr__(self, attribute):
            raise method_missing(type(self), attribute)

        def __getitem__(self, item):
            raise NotSubscriptable(type(self).__name__, f"{item!r:.80}")

        def __iter__(self):
            raise NotIterable(type(self).__name__)

        def __len__(self):
            raise NotIterable(type(self).__name__)

    def __repr__(self) -> str:
        names = ", ".join(self._graph.steps[each.step].name for each in self._inputs)
        return f"<{type(self).__name__} of {names} in the job {self._graph.name}>"

    def on(self, place: Literal["driver"] | None = None, *, host: str | None = None, exclusive: bool = False) -> Self:
        """Says where the tasks of the last step run, and with it those of the steps in the same vertex.

        The rule holds at the start, else the job ends with an error, and after each take-over. Where no living process
        allows it any more, the task runs elsewhere, and an alarm says so.

        Args:
            place: "driver" for the host of the driver.
            host: name of a host, as its ``hostname`` is, or of a failure domain, such as "domain-0".
            exclusive: whether each task has a process without other tasks. It may have standbys and keepers of others.

        Raises:
            InvalidJob: the rule says nothing, contradicts itself, or is the second one of the step.

        Example::

            rows.map(score, name="score").on(host="gpu-1", exclusive=True)
        """
        number = self._inputs[0].step
        name, before = self._graph.steps[number].name, self._graph.steps[number].rule
        if place not in (None, "driver") or (place is not None and host is not None):
            raise InvalidJob(name, f"is to run on {place!r:.80}", 'Give .on("driver"), or .on(host="name").')
        if len(self._inputs) > 1:
            raise InvalidJob(name, "is one of several in .on(...)", "Call .on(...) on each of them, before union.")
        if host is not None and (type(host) is not str or not host):
            raise InvalidJob(name, f"is to run on the host {host!r:.80}", "Give the name of a host.")
        rule = PlacementRule(host or "", place is not None, exclusive)
        if rule == ANYWHERE:
            raise InvalidJob(name, "has an .on() that says nothing", 'Give "driver", host= or exclusive=True.')
        if before != ANYWHERE:
            raise InvalidJob(name, "has two rules of .on(...)", "Give one .on(...) with all that is to hold.")
        self._graph.place(number, rule)
        return self

    def _take(self, count: int) -> list[Any]:
        if self._graph.take_rows is None:
            raise InvalidJob("take", "belongs to a graph without a job", "Create the stream from a Job.")
        return self._graph.take_rows(self._inputs, count)

    def _inputs_by(
        self, exchange: Exchange, key: KeyBy | None = None, route: Route | None = None
    ) -> tuple[StepInput, ...]:
        return tuple(replace(each, exchange=exchange, key=key, route=route) for each in self._inputs)

    def _step(self, kind: str, definition: Definition, common: Common) -> tuple[StepInput, ...]:
        """Adds a step with one input.

        Raises: InvalidJob: a function of the user does not fit, or an option cannot be used.
        """
        return (StepInput(self._graph.add(kind, self._inputs, common, definition).number),)

    def _process(self, function: Any, is_keyed: bool, common: Common) -> tuple[StepInput, ...]:
        kind = "process"
        check_process(common.get("name") or kind, function)
        has_times = self._graph.have_times(self._inputs)
        if not has_times and uses(function, "set_event_timer"):
            raise InvalidJob(
                common.get("name") or kind, "sets event-time timers on a stream without event time", GIVE_TIMESTAMPS
            )
        definition = partial(Process.facts, function=function, has_times=has_times, is_keyed=is_keyed)
        return self._step(kind, definition, common)

    def _side_output(self, tag: Tag[Any]) -> tuple[StepInput, ...]:
        found = []
        for each in self._inputs:
            step = self._graph.steps[each.step]
            if step.kind == "map_frames":  # the step in front of it, which gathers the records, has those that are late
                (each,) = step.inputs
                step = self._graph.steps[each.step]
            if not isinstance(tag, Tag):
                raise InvalidJob(step.name, f"gets side_output({tag!r:.80})", 'Give a tag: Tag("late").')
            if step.side_tags == () or each.tag or each.exchange is not Exchange.FORWARD:
                raise InvalidJob(
                    step.name,
                    "has no side outputs",
                    "Call side_output on the stream that process has returned, or a window, join or merge with"
                    ' late=Tag("late").',
                )
            if step.side_tags is not None and tag.name not in step.side_tags:
                raise InvalidJob(
                    step.name,
                    f"has no side output {tag.name!r}; it has {', '.join(map(repr, step.side_tags))}",
                    "Give the same tag to late= and to side_output.",
                )
            found.append(replace(each, tag=tag.name))
        return tuple(found)

    def _with_timestamps(self, timestamps: AnyTimestamps, name: str | None) -> tuple[StepInput, ...]:
        """Adds a step that assigns timestamps; its tasks are those of the step before it, if there is only one.

        Raises: InvalidJob: the timestamps cannot be used.
        """
        assigner = assigner_of(timestamps)
        use = f"takes timestamps from {assigner.of!r}"
        check_present(self._graph, self._inputs, name or "with_timestamps", use, assigner.of)
        upstreams = [self._graph.steps[each.step] for each in self._inputs]
        common: Common = {"name": name, "parallelism": upstreams[0].parallelism if len(upstreams) == 1 else None}
        return self._step("with_timestamps", partial(AssignTimestamps.facts, assigner=assigner), common)

    def _sink(self, sink: AnySink, flush: Emission | None, name: str | None, parallelism: int | None) -> None:
        self._graph.check_sink(name or "sink", sink)
        inputs = self._inputs
        if flush is not None:
            inputs, parallelism = self._flushed(sink, flush, name, parallelism), None
        step = self._graph.add("sink", inputs, {"name": name, "parallelism": parallelism}, sink=sink)
        take_step: Callable[[str], None] | None = getattr(sink, "take_step", None)
        if take_step is not None:
            take_step(step.name)

    def _flushed(
        self, sink: AnySink, flush: Emission, name: str | None, parallelism: int | None
    ) -> tuple[StepInput, ...]:
        """Adds the step in front of a sink in which its rows wait; its tasks are those that the sink would have."""
        check_flush(name or "sink", sink, flush)
        before = {self._graph.steps[each.step].parallelism for each in self._inputs}
        if parallelism is None and len(before) == 1:
            (parallelism,) = before
        is_keyed = any(each.key is not None for each in self._inputs)
        common: Common = {"name": name and f"{name}.flush", "parallelism": parallelism}
        return self._step("flush", partial(Flush.facts, flush=flush, is_keyed=is_keyed), common)

    def _gathered(self, rows: Any, within: Duration | None, common: Common) -> tuple[StepInput, ...]:
        """Adds the step in front of a function of batches in which records wait until they are ``rows``."""
        step, parallelism = common.get("name"), common.get("parallelism")
        if type(rows) is not int or not 0 < rows <= GATHERED_ROWS_MAX:
            raise InvalidJob(
                step or "map_batches",
                f"gets rows={rows!r:.80}",
                f"Give the records of a batch, an int from 1 to {GATHERED_ROWS_MAX:,}; within= is the longest wait.",
            )
        interval_ns = None if within is None else duration_ns(within)
        common = {"name": step and f"{step}.gather", "parallelism": parallelism, "standby": common.get("standby")}
        return self._step("gather", plain(partial(Gather, count=rows, interval_ns=interval_ns)), common)

    def _union(self, others: Iterable[GraphBuilder]) -> tuple[StepInput, ...]:
        inputs = self._inputs
        others = tuple(others)
        check_streams("union", others)
        for other in others:
            if other._graph is not self._graph:
                raise InvalidJob("union", "joins streams of two jobs", "Both must come from one Job.")
            inputs += other._inputs
        return inputs
