"""Text of an explanation, in lines of at most 100 characters: the steps as a tree, then the vertices one by one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from clonos.api.plan.explanation import (
    ExchangeInfo,
    Explanation,
    LimitInfo,
    SinkInfo,
    SourceInfo,
    StateInfo,
    StepInfo,
    StretchInfo,
    VertexInfo,
)
from clonos.api.plan.step_tree import tree_lines
from clonos.operators.event_time.durations import duration_text

WIDTH: Final = 100
LABEL: Final = 12
INDENT: Final = "  "

GUARANTEES: Final = {
    "checkpoint": "exactly-once: rows become visible when a checkpoint completes",
    "immediate": "exactly-once, immediate: rows are numbered and leave at once, repeated ones are dropped",
}

POSITIONS: Final = {
    "record": "after the last record that the limit needs",
    "step": "after the last record that the limit needs, or a few further, as one record may give several results",
    "checkpoint": "after what it has read when the next checkpoint begins, as the limit is in another task",
}


def explanation_text(plan: Explanation) -> str:
    """Formats an explanation for a terminal."""
    tasks = sum(vertex.tasks for vertex in plan.vertices)
    every = duration_text(plan.checkpoint_every_ms * 1_000_000)
    counts = f"{_several(len(plan.steps), 'step')}, {_several(len(plan.vertices), 'vertex')}, {_several(tasks, 'task')}"
    lines = [f"Job {plan.job}: {counts}; a checkpoint every {every}", "", "Logical plan"]
    for indent, text in tree_lines(plan):
        lines += _wrapped(text, INDENT + indent)
    lines += ["", "Physical plan"]
    for number, vertex in enumerate(plan.vertices, 1):
        lines += [f"{INDENT}{number}. {vertex.name}: {_several(vertex.tasks, 'task')}"]
        for label, text in _facts(vertex, plan):
            lines += _wrapped(text, f"{INDENT}   {label:<{LABEL}}")
    columns = tuple(map(_stretch_text, plan.columns))
    for title, sentences in (("Columns", columns), ("Order", plan.order), ("Warnings", plan.warnings)):
        if sentences:
            lines += ["", title]
            lines += [line for sentence in sentences for line in _wrapped(sentence, f"{INDENT}- ")]
    return "\n".join(lines)


def _stretch_text(stretch: StretchInfo) -> str:
    *others, last = stretch.rows_from or ("",)
    names = f"{', '.join(others)} and {last}" if others else last
    rows = f"; rows from {names} on" if names else ""
    return f"{_several(len(stretch.steps), 'step')}: {', '.join(stretch.steps)}{rows}"


def _facts(vertex: VertexInfo, plan: Explanation) -> Iterator[tuple[str, str]]:
    """Yields the labelled lines of a vertex."""
    inside = [step for step in plan.steps if step.name in vertex.steps]
    yield "begins", f"because {vertex.begins}"
    yield "steps", " → ".join(vertex.steps)
    if vertex.takes_errors:
        givers = dict.fromkeys(each.source for each in plan.exchanges if each.target == vertex.name)
        yield "input", f"records whose step raised, from {', '.join(givers)}"
    else:
        yield from (("input", _exchange_text(each)) for each in plan.exchanges if each.target == vertex.name)
    for step in inside:
        if step.source is not None:
            yield "source", f"{step.name}: {_source_text(step.source)}"
            yield from _narrowing_facts(step.name, step.source)
    for step in inside:
        yield from _time_facts(step)
    for step in inside:
        if step.state is not None:
            yield "state", f"{step.name}: {_state_text(step.state)}"
    yield from _column_facts(inside)
    for step in inside:
        if step.limit is not None:
            yield "limit", f"{step.name}: {_limit_text(step.limit)}"
    for step in inside:
        if step.sink is not None:
            yield "sink", f"{step.name}: {_sink_text(step.sink)}"
        if step.has_effects:
            yield "effects", f"{step.name} changes something outside the job"
    if vertex.takes_errors and plan.errors is not None:
        yield "sink", _sink_text(plan.errors)
    yield "standbys", f"{vertex.standbys} {vertex.standby} per task" if vertex.standbys else "none"
    if vertex.keepers:
        yield "keepers", f"the log of each task is also held by {_several(vertex.keepers, 'other slot')}"


def _exchange_text(exchange: ExchangeInfo) -> str:
    by = f" by {exchange.key.by} ({exchange.key.name})" if exchange.key is not None else ""
    return f"{exchange.kind}{by} from {exchange.source}: results of {exchange.step}"


def _source_text(source: SourceInfo) -> str:
    if source.note:
        splits = "splits not known yet"
    elif source.splits is None:
        splits = "received by one task and kept in a journal, because it cannot be read again"
    else:
        splits = _several(source.splits, "split")
    return f"{source.connector}, {splits}{', without an end' if source.is_unbounded else ''}"


def _narrowing_facts(step: str, source: SourceInfo) -> Iterator[tuple[str, str]]:
    if source.columns:
        yield "reads", f"{step}: only {', '.join(source.columns)}"
    if source.bounds:
        yield "skips", f"{step}: what its statistics exclude from {' and '.join(source.bounds)}"


def _limit_text(limit: LimitInfo) -> str:
    ends = f"{' and '.join(limit.sources)} {'ends' if len(limit.sources) == 1 else 'end'}"
    return f"{_several(limit.records, 'record')}, then {ends}, committed {POSITIONS[limit.position]}"


def _sink_text(sink: SinkInfo) -> str:
    key = f", one row per {', '.join(sink.key)}" if sink.key else ""
    return f"{sink.connector}{key}; {GUARANTEES[sink.guarantee]}"


def _time_facts(step: StepInfo) -> Iterator[tuple[str, str]]:
    if step.time.of:
        yield "timestamps", f"{step.name}: from {step.time.of}; watermarks {step.time.watermarks}"
    elif step.time.is_lost:
        yield "timestamps", f"{step.name} loses them: its results have none"


def _state_text(state: StateInfo) -> str:
    key = f" by {state.key}" if state.key else ""
    return "; ".join([state.kind + key, *(f"{name}: {text}" for name, text in state.properties.items())])


def _column_facts(steps: list[StepInfo]) -> Iterator[tuple[str, str]]:
    columnar = [step.name for step in steps if "columns" in (step.takes, step.gives) and not step.row_reason]
    if columnar:
        yield "columns", ", ".join(columnar)
    yield from (("schema", f"{step.name}: {', '.join(step.schema)}") for step in steps if step.schema)
    yield from (("rows", f"from {step.name} on: {step.row_reason}") for step in steps if step.row_reason)


def _wrapped(text: str, first: str) -> list[str]:
    rest = first.replace("├─", "│ ").replace("└─", "  ") if "─" in first else " " * len(first)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)


def _several(count: int, what: str) -> str:
    plural = "vertices" if what == "vertex" else f"{what}s"
    return f"{count} {what if count == 1 else plural}"
