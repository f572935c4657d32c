"""Steps after a source that never ends that keep more and more state, or emit only when the input has ended."""

from __future__ import annotations

import logging
import re
from typing import Final

from clonos.api.step import Step
from clonos.api.step_graph import StepGraph
from clonos.operators.connector_contract import PushSource, discovery_interval_ns

logger = logging.getLogger("clonos.run")

REMEMBERS_ALL: Final = ("within", "None")
"""Property of the state of a step that forgets no key."""

GATHERS: Final = re.compile(r"(\w+)=(?:collect|distinct|count_distinct)\(")
"""Aggregates that keep values, in the text of the aggregates of a step."""

LIMIT: Final = "limit"
AGGREGATE: Final = "aggregate"
WINDOW: Final = "window_"


def warn_of_growing_state(graph: StepGraph) -> None:
    """Logs a warning for each such step."""
    for text in growth_warnings(graph):
        logger.warning("%s", text)


def growth_warnings(graph: StepGraph) -> list[str]:
    """Returns a warning for each such step; none if a limit ends the sources."""
    if any(step.kind == LIMIT for step in graph.steps):
        return []
    endless: dict[int, str] = {}  # the source that never ends, of each step after one
    found = []
    for step in graph.steps:
        source = _endless_source(step, endless)
        if source is None:
            continue
        endless[step.number] = source
        if REMEMBERS_ALL in (step.state or ()):
            found.append(
                f"the step {step.name} remembers every key for ever, and the source {source} never ends: its state"
                ' grows without bound. Use deduplicate(by, within="1h") where duplicates come within a length of time.'
            )
        elif gathered := _gathered(step):
            found.append(
                f"the step {step.name} keeps the values of {gathered} for ever, and the source {source} never ends: its"
                " state grows without bound. Aggregate in windows, or use aggregates that keep no values, such as"
                " approx_distinct."
            )
        elif step.emits_at_end:
            advice = (
                'Give the window a trigger, such as trigger=each(100), or use Tumbling("1h")'
                if step.kind.startswith(WINDOW)
                else 'Give emit=each(100) or emit=every("5s")'
            )
            found.append(
                f"the step {step.name} emits only when its input has ended, and the source {source} never ends."
                f" {advice}."
            )
    return found


def endless_sources(graph: StepGraph) -> dict[int, str]:
    """Returns for each step whose input never ends the name of a source that does not; none if a limit ends them."""
    endless: dict[int, str] = {}
    if any(step.kind == LIMIT for step in graph.steps):
        return endless
    for step in graph.steps:
        if (source := _endless_source(step, endless)) is not None:
            endless[step.number] = source
    return endless


def _gathered(step: Step) -> str:
    """Returns the names of the aggregates of a step without windows that keep values."""
    if step.kind != AGGREGATE:
        return ""
    return ", ".join(GATHERS.findall(dict(step.state or ()).get("aggregates", "")))


def _endless_source(step: Step, endless: dict[int, str]) -> str | None:
    if isinstance(step.source, PushSource) or discovery_interval_ns(step.source):
        return step.name
    return next((endless[each.step] for each in step.inputs if each.step in endless), None)
