"""Splits of the sources of a job: those found at its first start, or the stored ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clonos.api.graph_errors import BadSplits, InvalidJob
from clonos.api.step import Step
from clonos.api.step_graph import StepGraph
from clonos.core.model.errors import ClonosError
from clonos.operators.connector_contract import Source, check_split


def splits_of(
    graph: StepGraph,
    ordered: Mapping[int, Any],
    parallelism_of: Callable[[Step], int],
    stored: Mapping[str, Sequence[bytes] | None] | None,
) -> dict[str, tuple[bytes, ...]]:
    """Returns the splits of each source by its name: the stored ones if the job is resumed, else those found now.

    ``ordered`` are the sources that are read in order, in place of those of their steps, by number of the step.

    Raises: InvalidJob: the job has no source. BadSplits: the stored splits are of other sources.
    """
    sources = _sources(graph)
    if stored is None:
        return {name: _listed(step, ordered, parallelism_of) for name, step in sources.items()}
    missing = tuple(name for name in sources if name not in stored)
    unknown = tuple(name for name in stored if name not in sources)
    if missing or unknown:
        raise BadSplits(missing, unknown)
    found: dict[str, tuple[bytes, ...]] = {}
    for name, step in sources.items():
        if (splits := stored[name]) is None:  # new in a job that starts from a savepoint
            found[name] = _listed(step, ordered, parallelism_of)
            continue
        for split in splits:
            check_split(step.source, split)
        found[name] = tuple(splits)
    return found


def splits_or_reasons(
    graph: StepGraph, ordered: Mapping[int, Any], parallelism_of: Callable[[Step], int]
) -> tuple[dict[str, tuple[bytes, ...]], dict[str, str]]:
    """Returns the splits of each source found now, and why some sources cannot list them, such as missing files.

    Raises: InvalidJob: the job has no source.
    """
    found: dict[str, tuple[bytes, ...]] = {}
    reasons = {}
    for name, step in _sources(graph).items():
        try:
            found[name] = _listed(step, ordered, parallelism_of)
        except Exception as error:  # noqa: BLE001  code of the user, which may need the machines of the job
            found[name] = ()
            reasons[name] = str(error) if isinstance(error, ClonosError) else f"{type(error).__name__}: {error}"
    return found, reasons


def _sources(graph: StepGraph) -> dict[str, Step]:
    sources = {step.name: step for step in graph.steps if step.source is not None}
    if not sources:
        raise InvalidJob(graph.name, "(the job) has no source", "Begin with job.source(...).")
    return sources


def _listed(step: Step, ordered: Mapping[int, Any], parallelism_of: Callable[[Step], int]) -> tuple[bytes, ...]:
    source = ordered.get(step.number, step.source)
    return tuple(source.splits(parallelism_of(step))) if isinstance(source, Source) else ()
