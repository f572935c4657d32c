"""Prepares a user's job for simulated worlds: its sources read the given inputs, its sinks are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from clonos.api.graph import JobGraph
from clonos.api.step import AnySink, Step
from clonos.config import JobSettings, resolve_keywords
from clonos.connectors.in_memory import ValueList, ValueReader
from clonos.core.model.errors import JobError
from clonos.io.process.pickling import pack
from clonos.job import Job
from clonos.job.description import graph_of, options_of
from clonos.operators.connector_contract import ImmediateSink, PushSource, Source, keyed_sink
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.job_image import JobImage
from clonos_chaos.user.user_sinks import RecordedExternal, RecordedRows, is_own

JobLike = Job | JobGraph | Callable[[], Job | JobGraph]
"""A job, or a function that makes one: called for each world."""

Inputs = Mapping[str, Iterable[Any]] | Iterable[Any] | None
"""Records by the name of their source; without names for one source; None: the job reads its own input."""

ERRORS = "errors"


@dataclass(frozen=True)
class Ready:
    """Job that worlds can run. ``packed``: pickled image, as a slot starts with. ``records``: None if unknown."""

    image: JobImage
    packed: bytes
    settings: JobSettings
    sinks: dict[str, RecordedRows | RecordedExternal]
    records: int | None


class ColumnList(ValueList[Any]):
    """Source of given rows as columns."""

    is_columnar = True

    def column_schema(self) -> Any | None:
        import pyarrow  # a job with columns has loaded it

        try:
            return pyarrow.RecordBatch.from_pylist(self.records).schema if self.records else None
        except pyarrow.ArrowException:  # no type has all values of a column
            return None

    def reader(self) -> ColumnReader:
        return ColumnReader(self.records, self.batch)


class ColumnReader(ValueReader[Any]):
    """Reader of a share of the rows, as columns."""

    def read(self, records_max: int) -> Any:
        import pyarrow  # a job with columns has loaded it

        rows = super().read(records_max)
        return None if rows is None else pyarrow.RecordBatch.from_pylist(rows)


def given_inputs(job: JobLike, inputs: Inputs) -> dict[str, list[Any]]:
    """Returns the inputs of a test by source; without any, the job's own ``values(...)``. Raises JobError."""
    graph = made(job)
    sources = [step for step in graph.steps if step.source is not None]
    names = [step.name for step in sources]
    if inputs is None:
        return {step.name: step.source.records for step in sources if isinstance(step.source, ValueList)}
    if isinstance(inputs, Mapping):
        unknown = sorted(set(inputs) - set(names))
        if unknown:
            raise JobError(f"{graph.name} has no source {unknown[0]!r}; inputs= may name: {', '.join(names)}.")
        return {name: list(records) for name, records in inputs.items()}
    if len(names) != 1:
        raise JobError(f"{graph.name} has {len(names)} sources ({', '.join(names)}): give inputs= by their names.")
    return {names[0]: list(inputs)}


def made(job: JobLike) -> JobGraph:
    """Makes the job and returns its graph. Raises JobError: the result is not a Job."""
    return _made(job)[0]


def _made(job: JobLike) -> tuple[JobGraph, dict[str, Any]]:
    """Makes the job and returns its graph and its options."""
    found = job if isinstance(job, Job | JobGraph) else job()
    if isinstance(found, Job):
        return graph_of(found), options_of(found)
    if not isinstance(found, JobGraph):
        raise JobError(f"{found!r:.100} is not a Job: pass a Job, or a function without arguments that makes one.")
    return found, {}


def ready(
    job: JobLike,
    inputs: Mapping[str, Sequence[Any]],
    records_max: int | None = None,
    is_called: Callable[[object], bool] = is_own,
) -> Ready:
    """Compiles and packs a job whose named sources read these inputs, at most ``records_max`` in all.

    ``is_called``: whether a sink is called for real, as a user's own sinks are; the rows of others are only recorded.
    """
    graph, options = _made(job)
    settings = resolve_keywords(options)
    limits = _limits({name: len(records) for name, records in inputs.items()}, records_max)
    sinks: dict[str, RecordedRows | RecordedExternal] = {}

    def watched(name: str, sink: AnySink) -> AnySink:
        own = sink if is_called(sink) else None
        if isinstance(sink, ImmediateSink):
            recorded: RecordedRows | RecordedExternal = RecordedExternal(name, own, keyed_sink(sink))  # type: ignore[arg-type]
        else:
            recorded = RecordedRows(name, own)  # type: ignore[arg-type]
        sinks[name] = recorded
        return recorded

    def changed(step: Step) -> Step:
        if step.assigner is not None:
            step = _at_any_time(step, step.assigner)
        if step.sink is not None:
            return replace(step, sink=watched(step.name, step.sink))
        if step.source is not None:
            return replace(step, source=_source(step, inputs.get(step.name), limits))
        return step

    tested = graph.changed(changed, None if graph.errors is None else watched(ERRORS, graph.errors))
    image = tested.compile(settings.core, parallelism=settings.run.parallelism)
    packed = pack(image, ((node.step, node.make) for vertex in image.vertices for node in vertex.nodes))
    is_known = len(inputs) == sum(step.source is not None for step in graph.steps)
    return Ready(image, packed, settings, sinks, sum(limits.values()) if is_known else None)


def _at_any_time(step: Step, assigner: TimestampAssigner) -> Step:
    """Returns a step whose timestamps may be ahead of the clock: that of a world stands in the past."""
    free = replace(assigner, future_max_ns=None)
    make: Any = step.make
    if make is not None:
        make = partial(make.func, *(free if each is assigner else each for each in make.args))
    return replace(step, assigner=free, make=make)


def _source(step: Step, records: Sequence[Any] | None, limits: Mapping[str, int]) -> Source[Any]:
    if records is not None:
        kind = ColumnList if step.emits_columns else ValueList
        ordered = getattr(step.source, "ordered", None)
        return kind(records[: limits[step.name]], batch=None, splits=None, ordered=ordered)
    if isinstance(step.source, PushSource):
        raise JobError(
            f"the source {step.name} cannot be re-read, and a simulated world has no producer for it:"
            f" give its records with inputs={{{step.name!r}: [...]}}."
        )
    assert step.source is not None
    return step.source


def _limits(counts: Mapping[str, int], records_max: int | None) -> dict[str, int]:
    """Returns how many records each source may read: equal shares of ``records_max``."""
    if records_max is None or records_max >= sum(counts.values()):
        return dict(counts)
    limits = dict.fromkeys(counts, 0)
    left = records_max
    while left > 0:
        for name, count in counts.items():
            if left and limits[name] < count:
                limits[name] += 1
                left -= 1
    return limits
