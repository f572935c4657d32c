"""Results that go nowhere: a job without any output is refused, a stream whose results nobody takes is mentioned."""

from __future__ import annotations

import logging

from clonos.api.graph_errors import InvalidJob
from clonos.api.step import Step
from clonos.api.step_graph import StepGraph

logger = logging.getLogger("clonos.run")

ADVICE = "End a stream with .sink(stdout()), .sink(files.jsonl('out')) or another sink; .sink(blackhole()) discards it."


def check_results(graph: StepGraph) -> None:
    """Checks that the job has an output, and warns of each step whose results no other step reads.

    A step with ``effects=True`` is an output, as a sink is.

    Raises: InvalidJob: the job has no output.
    """
    unread = [step for step in graph.steps if is_unread(step, graph)]
    if unread and not any(_is_output(step) for step in graph.steps):
        raise InvalidJob(unread[-1].name, "is the end of a job without a sink: its results would be lost", ADVICE)
    for step in unread:
        logger.warning(
            "the results of the step %s go nowhere: no step reads them. A method of a stream returns a new stream and"
            " does not change the old one: go on with what it returns, or end it with a sink.",
            step.name,
        )


def is_unread(step: Step, graph: StepGraph) -> bool:
    """Returns whether no step reads the results of ``step``, and it is no output itself."""
    return not _is_output(step) and not any(each.step == step.number for other in graph.steps for each in other.inputs)


def _is_output(step: Step) -> bool:
    return step.sink is not None or step.has_effects
