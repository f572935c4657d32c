"""Graph of a job with its ends: the sources that it begins with, and the physical plan that is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar, Unpack

from clonos.api.checks.wrong_ends import how_to_read
from clonos.api.common import Common
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import StepInput
from clonos.api.step_graph import StepGraph
from clonos.core.model.options import Options
from clonos.operators.column_contract import gives_columns
from clonos.operators.connector_contract import PhasedSource, PushSource, Source
from clonos.operators.job_image import JobImage
from clonos.operators.split_source import SourceHead

if TYPE_CHECKING:
    from clonos.api.event_time import AnyTimestamps
    from clonos.api.stream import Stream

T = TypeVar("T")


class JobGraph(StepGraph):
    """Description of a job: streams begin at its sources, and ``compile`` makes the plan of its steps."""

    def source(
        self,
        source: Source[T] | PushSource[T],
        *,
        timestamps: AnyTimestamps | None = None,
        limit: int | None = None,
        **common: Unpack[Common],
    ) -> Stream[T]:
        """Adds a source and returns the stream of its records, as ``Job.source`` does.

        Raises: InvalidJob: this is not a source, or the name, the parallelism, the standby or the limit cannot be used.
        """
        from clonos.api.stream import Stream

        limit = self.limit if limit is None else limit
        name = common.get("name")
        common["parallelism"] = _parallelism_of_source(
            source, name or "source", common.get("parallelism"), has_limit=limit is not None
        )
        emits_columns = gives_columns(source)
        assigner = None
        if (own := getattr(source, "own_timestamps", None)) is not None and timestamps is not None:
            raise InvalidJob(name or "source", "has timestamps of its own and timestamps=", "Leave one out.")
        timestamps = timestamps or own
        if timestamps is not None and not isinstance(source, PushSource):
            from clonos.api.event_time import assigner_of, check_columns

            assigner = assigner_of(timestamps)
            check_columns(name or "source", assigner, emits_columns)
        definition = partial(SourceHead.facts, source=source, assigner=assigner)
        step = self.add("source", (), common, definition, source=source)
        stream: Stream[T] = Stream(self, (StepInput(step.number),))
        if emits_columns and assigner is not None:
            from clonos.api.columns.column_checks import check_present

            check_present(self, stream._inputs, step.name, f"has timestamps={assigner.of!r}", assigner.of)
        if timestamps is not None and isinstance(source, PushSource):
            stream = stream.with_timestamps(timestamps)
        return stream if limit is None else stream.limit(limit, name=name and f"{step.name}.limit")

    def compile(
        self,
        options: Options,
        *,
        parallelism: int = 1,
        splits: Mapping[str, Sequence[bytes] | None] | None = None,
    ) -> JobImage:
        """Compiles the physical plan with the operators of its vertices.

        ``parallelism`` is that of every step without its own. ``splits`` are those of the first start
        (``JobImage.splits``) if the job is resumed; None: each source is asked for its splits.

        Raises: InvalidJob, ColumnsNeeded: the job is not well-formed. BadSplits: ``splits`` are of other sources.
        """
        from clonos.api.plan.compiling import compile_graph

        return compile_graph(self, options, parallelism, splits)


def _parallelism_of_source(source: object, step: str, parallelism: int | None, *, has_limit: bool) -> int | None:
    """Returns the parallelism of a source: 1 if only one task can read it, or count to its limit.

    Raises: InvalidJob: this is not a source, or it cannot have the given parallelism.
    """
    if not isinstance(source, (Source, PushSource)):
        raise InvalidJob(
            step,
            f"gets a {type(source).__qualname__}, which is not a source",
            how_to_read(source),
        )
    if has_limit and parallelism not in (None, 1):
        raise InvalidJob(
            step,
            f"has a limit and the parallelism {parallelism!r}, and only one task can count to it",
            "Leave out parallelism=, or the limit.",
        )
    if isinstance(source, PushSource) and parallelism not in (None, 1):
        raise InvalidJob(
            step,
            f"has the parallelism {parallelism!r}, but its source has a single connection",
            "Leave it out; join several sources by union if one connection is too slow.",
        )
    if isinstance(source, PhasedSource) and parallelism not in (None, 1):
        raise InvalidJob(
            step,
            f"has the parallelism {parallelism!r}, but one task reads a history and what follows, in one order",
            "Leave it out.",
        )
    has_one_task = has_limit or isinstance(source, (PushSource, PhasedSource))
    return 1 if has_one_task else parallelism
