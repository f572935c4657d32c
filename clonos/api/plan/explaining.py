"""Making of an explanation from a graph: compiles it, and says what each step and each vertex is and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from clonos.api.checks.code.code_check import warnings_of
from clonos.api.checks.growing_state import growth_warnings
from clonos.api.checks.row_functions import row_function_warnings
from clonos.api.checks.unnamed_steps import unnamed_warning
from clonos.api.checks.unused_results import is_unread
from clonos.api.columns.narrowing import narrowing_of
from clonos.api.columns.schemas import column_texts
from clonos.api.graph_errors import InvalidJob
from clonos.api.key_by import KeyBy
from clonos.api.plan import step_texts
from clonos.api.plan.compiling import Compilation, compile_to_explain
from clonos.api.plan.explain_mermaid import explanation_mermaid
from clonos.api.plan.explain_text import explanation_text
from clonos.api.plan.explanation import (
    FORMAT,
    ExchangeInfo,
    Explanation,
    InputInfo,
    KeyInfo,
    LimitInfo,
    SinkInfo,
    SourceInfo,
    StateInfo,
    StepInfo,
    StretchInfo,
    TimeInfo,
    VertexInfo,
)
from clonos.api.step import Step, StepInput
from clonos.api.step_graph import StepGraph
from clonos.core.model.options import Options
from clonos.core.model.plan import LIMIT_KIND, Partitioning, StatefulStep, Vertex
from clonos.operators.column_contract import writes_columns
from clonos.operators.connector_contract import (
    ImmediateSink,
    PushSource,
    discovery_interval_ns,
    keyed_sink,
)


def explain_graph(graph: StepGraph, options: Options, parallelism: int) -> Explanation:
    """Explains a job without running it. Its input need not exist yet.

    Raises: InvalidJob, ColumnsNeeded: the job is not well-formed.
    """
    return _Explainer(compile_to_explain(graph, options, parallelism)).explanation(parallelism)


def explained(graph: StepGraph, options: Options, parallelism: int, form: str) -> str:
    """Explains a job as "text", "mermaid" or "json".

    Raises: InvalidJob: there is no such form, or the job is not well-formed. ColumnsNeeded.
    """
    if form not in FORMATS:
        raise InvalidJob("explain", f"gets the format {form!r:.80}", f"Give one of {', '.join(FORMATS)}.")
    return FORMATS[form](explain_graph(graph, options, parallelism))


def _json(plan: Explanation) -> str:
    return msgspec.json.format(msgspec.json.encode(plan), indent=2).decode()


FORMATS: Final[dict[str, Callable[[Explanation], str]]] = {
    "text": explanation_text,
    "mermaid": explanation_mermaid,
    "json": _json,
}


class _Explainer:
    def __init__(self, compiled: Compilation) -> None:
        self._graph, self._compiled = compiled.graph, compiled
        self._plan, self._options = compiled.image.plan, compiled.image.options
        self._states = {step.name: step for vertex in self._plan.vertices for step in vertex.steps}

    def explanation(self, parallelism: int) -> Explanation:
        order = self._compiled.image.order
        steps = tuple(map(self._step, self._graph.steps))
        return Explanation(
            FORMAT,
            self._graph.name,
            parallelism,
            self._options.checkpoint_every_ms,
            steps,
            tuple(map(self._vertex, range(len(self._plan.vertices)))),
            tuple(map(self._exchange, range(len(self._plan.edges)))),
            _sink_of(self._graph.errors),
            order.ends,
            (*order.few_tasks, *self._warnings()),
            stretches_of(steps),
        )

    # --- steps

    def _step(self, step: Step) -> StepInfo:
        inputs = [self._graph.steps[each.step] for each in step.inputs]
        takes_columns = any(map(self._graph.gives_columns, step.inputs))
        keys = tuple(each for each in step.inputs if each.key is not None)
        is_immediate = isinstance(step.sink, ImmediateSink) and not writes_columns(step.sink)
        reason = getattr(step.source, "row_reason", "")
        if takes_columns:
            reason = step_texts.row_reason(step, self._graph.steps, keys, is_immediate)
        if step.sink is not None:
            reason = reason or step_texts.sink_reason(step, self._graph.steps)
        vertex = self._plan.vertices[self._compiled.vertex_of[step.number]]
        return StepInfo(
            step.name,
            step.kind,
            step.is_named,
            tuple(map(self._input, step.inputs)),
            (*map(step_texts.function_text, step.functions), *(step.stage.texts() if step.stage else ())),
            vertex.name,
            vertex.parallelism,
            takes="" if step.source is not None else "columns" if takes_columns else "rows",
            gives="" if step.sink is not None else "columns" if step.emits_columns else "rows",
            row_reason=reason,
            time=_time_of(step, any(upstream.has_times for upstream in inputs)),
            state=_state_of(self._states.get(step.name)),
            source=self._source_of(step),
            sink=_sink_of(step.sink),
            limit=limit_of(step, self._graph.steps, self._compiled.vertex_of),
            has_effects=step.has_effects,
            is_unread=is_unread(step, self._graph),
            schema=column_texts(self._graph.steps, step),
        )

    def _input(self, step_input: StepInput) -> InputInfo:
        name = self._graph.steps[step_input.step].name
        return InputInfo(name, step_input.tag, step_input.exchange.value, _key_of(step_input.key))

    def _source_of(self, step: Step) -> SourceInfo | None:
        if step.source is None:
            return None
        note = self._compiled.unlisted.get(step.name, "")
        is_pushed = isinstance(step.source, PushSource)
        count = None if note or is_pushed else len(self._compiled.image.splits[step.name])
        is_unbounded = is_pushed or discovery_interval_ns(step.source) > 0
        columns, bounds = narrowing_of(step, self._graph.steps) or (None, ())
        texts = tuple(f"{bound.column} {bound.comparison} {bound.value!r}" for bound in bounds)
        return SourceInfo(step_texts.connector_text(step.source), count, is_unbounded, note, columns or (), texts)

    # --- vertices

    def _vertex(self, number: int) -> VertexInfo:
        vertex, options, first = self._plan.vertices[number], self._options, self._plan.first_task[number]
        steps = [step for step in self._graph.steps if self._compiled.vertex_of[step.number] == number]
        names = [name for step in steps for name in (step.name, *self._keys_after(step))]
        return VertexInfo(
            vertex.name,
            vertex.parallelism,
            tuple(names) or (vertex.name,),
            self._compiled.begins[number],
            _standby_of(vertex, options),
            options.standbys,
            options.keepers if first in self._plan.all_with_keepers else 0,
            takes_errors=not steps,
        )

    def _keys_after(self, step: Step) -> list[str]:
        """Returns the names of the ``key_by`` steps that run in the tasks of ``step``."""
        inputs = [each for reader in self._graph.steps for each in reader.inputs if each.step == step.number]
        return list(dict.fromkeys(each.key.name for each in inputs if each.key is not None))

    def _exchange(self, number: int) -> ExchangeInfo:
        edge, vertices = self._plan.edges[number], self._plan.vertices
        target = None if edge.target is None else vertices[edge.target].name
        step_input = self._compiled.inputs.get(number)
        if step_input is None:
            return ExchangeInfo(vertices[edge.source].name, target, edge.partitioning.value, edge.giver, None)
        # A task that the sender chooses is a hash of the core; the user knows it by the name of the exchange.
        kind = step_input.exchange if edge.partitioning is Partitioning.HASH else edge.partitioning
        giver = self._graph.steps[step_input.step].name
        return ExchangeInfo(vertices[edge.source].name, target, kind.value, giver, _key_of(step_input.key))

    def _warnings(self) -> list[str]:
        unread = [step.name for step in self._graph.steps if is_unread(step, self._graph)]
        lost = [f"the results of the step {name} go nowhere: no step reads them" for name in unread]
        missing = [f"the splits of {name} are not known yet: {note}" for name, note in self._compiled.unlisted.items()]
        unnamed = unnamed_warning(self._graph)
        code = [text for _, text in warnings_of(self._graph)]
        costly = row_function_warnings(self._graph)
        return [*missing, *lost, *([unnamed] if unnamed else []), *growth_warnings(self._graph), *costly, *code]


def _key_of(key_by: KeyBy | None) -> KeyInfo | None:
    return None if key_by is None else KeyInfo(key_by.name, step_texts.key_text(key_by))


def _time_of(step: Step, has_input_times: bool) -> TimeInfo:
    is_lost = has_input_times and not step.has_times and step.sink is None and step.flush is None
    if step.assigner is None:
        return TimeInfo(step.has_times, "", "", is_lost)
    place = "split" if step.source is not None else "task"
    of, watermarks = step_texts.timestamps_text(step.assigner), step_texts.watermarks_text(step.assigner, place)
    return TimeInfo(step.has_times, of, watermarks, is_lost)


def _state_of(stateful: StatefulStep | None) -> StateInfo | None:
    if stateful is None:
        return None
    texts = {name: step_texts.property_text(name, text) for name, text in stateful.properties}
    properties = {name: text for name, text in texts.items() if text}
    return StateInfo(stateful.kind, properties.pop("key", ""), properties)


def _sink_of(sink: Any) -> SinkInfo | None:
    if sink is None:
        return None
    keyed = keyed_sink(sink)
    guarantee = "immediate" if isinstance(sink, ImmediateSink) else "checkpoint"
    return SinkInfo(step_texts.connector_text(sink), guarantee, () if keyed is None else tuple(keyed.key_columns))


def _standby_of(vertex: Vertex, options: Options) -> str:
    if not options.standbys:
        return "none"
    return "hot" if vertex.is_hot else "passive"


def limit_of(step: Step, steps: Sequence[Step], vertex_of: Sequence[int]) -> LimitInfo | None:
    """Returns what a limit means for the sources in front of it; None for another step."""
    if step.kind != LIMIT_KIND or not isinstance(step.make, partial):
        return None
    before = {each.number: each for each in _before(step, steps)}
    sources = sorted(number for number, each in before.items() if each.source is not None)
    is_in_chain = all(vertex_of[number] == vertex_of[step.number] for number in before)
    return LimitInfo(
        step.make.keywords["count"],
        tuple(steps[number].name for number in sources),
        "checkpoint" if not is_in_chain else "record" if all(map(_gives_one, before.values())) else "step",
    )


def _before(step: Step, steps: Sequence[Step]) -> Iterator[Step]:
    for each in step.inputs:
        yield steps[each.step]
        yield from _before(steps[each.step], steps)


def _gives_one(step: Step) -> bool:
    return step.is_one_to_one or step.selects_rows or step.gives_one_at_most


def stretches_of(steps: Sequence[StepInfo]) -> tuple[StretchInfo, ...]:
    """Returns the longest stretches of steps that pass columns to each other, longest first."""
    place_of = {step.name: place for place, step in enumerate(steps)}
    found: dict[int, list[int]] = {}  # places by the first one of their stretch
    stretch_of: dict[int, int] = {}
    ends: dict[int, list[str]] = {}
    for place, step in enumerate(steps):
        givers = [place_of[each.step] for each in step.inputs if not each.side_output]
        before = sorted({stretch_of[giver] for giver in givers if _passes_columns(steps[giver])})
        for each in step.inputs:
            if each.side_output and place_of[each.step] in stretch_of:  # its records leave the columns there
                ends[stretch_of[place_of[each.step]]].append(step.name)
        if step.takes == "columns" and step.row_reason:
            for stretch in before:
                ends[stretch].append(step.name)
            before = []
        if step.takes != "columns" or step.row_reason:
            before = []
        if not before and step.gives != "columns":
            continue
        first, *others = before or [place]
        found.setdefault(first, []).append(place)
        ends.setdefault(first, [])
        for other in others:  # a step of several inputs joins their stretches
            found[first] = sorted({*found[first], *found.pop(other)})
            ends[first] += ends.pop(other)
        stretch_of |= dict.fromkeys(found[first], first)
    long = [first for first in found if len(found[first]) > 1 or ends[first]]
    return tuple(
        StretchInfo(tuple(steps[place].name for place in found[first]), tuple(dict.fromkeys(ends[first])))
        for first in sorted(long, key=lambda first: -len(found[first]))
    )


def _passes_columns(step: StepInfo) -> bool:
    return step.gives == "columns" and not (step.takes == "columns" and step.row_reason)
