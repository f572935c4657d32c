"""Splits of the sources of a job: those found at its first start, or the stored ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clonos.api.graph import JobGraph, Step
from clonos.api.graph_errors import BadSplits, InvalidJob
from clonos.operators.connector_contract import Source, check_split


def splits_of(
    graph: JobGraph,
    ordered: Mapping[int, Any],
    parallelism_of: Callable[[Step], int],
    stored: Mapping[str, Sequence[bytes]] | None,
) -> dict[str, tuple[bytes, ...]]:
    """Returns the splits of each source by its name: the stored ones if the job is resumed, else those found now.

    ``ordered`` are the sources that are read in order, in place of those of their steps, by number of the step.

    Raises: InvalidJob: the job has no source. BadSplits: the stored splits are of other sources.
    """
    sources = {step.name: step for step in graph.steps if step.source is not None}
    if not sources:
        raise InvalidJob(graph.name, "(the job) has no source", "Begin with job.source(...).")
    if stored is None:
        found = {name: ordered.get(step.number, step.source) for name, step in sources.items()}
        return {
            name: tuple(source.splits(parallelism_of(sources[name]))) if isinstance(source, Source) else ()
            for name, source in found.items()
        }
    missing = tuple(name for name in sources if name not in stored)
    unknown = tuple(name for name in stored if name not in sources)
    if missing or unknown:
        raise BadSplits(missing, unknown)
    for name, step in sources.items():
        for split in stored[name]:
            check_split(step.source, split)
    return {name: tuple(stored[name]) for name in sources}
