"""Errors in the description of a job, raised while it is written or compiled and never while it runs."""

from __future__ import annotations

from clonos.core.model.errors import JobError


class InvalidJob(JobError):
    """A job is not well-formed. ``step`` is the name of the step, ``advice`` what to change."""

    step: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"the step {self.step} {self.problem}. {self.advice}"


class ColumnsNeeded(JobError):
    """A step that works on columns is connected to a step that gives rows.

    ``reason``: why that step turns columns into rows, "" if it gets none.
    """

    step: str
    upstream: str
    reason: str = ""

    def __str__(self) -> str:
        because = f", because {self.reason}" if self.reason else ""
        return (
            f"the step {self.step} works on columns, and {self.upstream} gives it rows{because}."
            " Columns come from sources that read columns (files.parquet). They stay columns in expressions and"
            " map_batches, and in windows, aggregates and joins by a column; a step that calls a function with each"
            " record gives rows (docs/columns.md). Put such steps after this one, or use map and filter with a"
            " function here."
        )


class ColumnsAwaited(ColumnsNeeded):
    """The same, because a watched source has no records yet, which would show its columns.

    ``interval_ns``: how often it looks for some.
    """

    interval_ns: int = 0

    def __str__(self) -> str:
        return f"the step {self.step} works on columns, and {self.reason}, or records, which show them"


class NotSubscriptable(JobError, TypeError):
    """A stream is used as a frame, as in ``stream["price"]``."""

    owner: str
    item: str

    def __str__(self) -> str:
        return (
            f'a {self.owner} has no [{self.item}]. Over columns, col("name") is a column of each record, select leaves'
            " columns and filter leaves records; over rows use map and filter with a function."
        )


class NotIterable(JobError, TypeError):
    """A stream is used as a list, as in ``for row in stream``, ``len(stream)`` or ``if stream``."""

    owner: str

    def __str__(self) -> str:
        return (
            f"a {self.owner} has no records before its job runs, so it has no length and cannot be iterated."
            " take(5) returns the first records; a loop over all of them is .sink(rows) with rows = collect(), then"
            " job.run(), then rows.rows."
        )


class BadSplits(JobError):
    """The stored splits of a resumed job belong to other sources than the job has now."""

    missing: tuple[str, ...]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"the job was first started with other sources: the store has no splits for {list(self.missing)}, and"
            f" {list(self.unknown)} are no longer sources. Give the sources their old names (name=), or start"
            " afresh with --overwrite."
        )
