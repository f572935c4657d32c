"""What is wrong with a job's description: found when it is written or compiled, never while it runs."""

from __future__ import annotations

from clonos.core.model.errors import JobError


class GraphRefused(JobError):
    """The job is not put together as it must be. ``step``: where; ``advice``: what to do."""

    step: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"the step {self.step} {self.problem}. {self.advice}"


class ColumnsNeeded(JobError):
    """A step that works on columns would get rows."""

    step: str
    giver: str

    def __str__(self) -> str:
        return (
            f"the step {self.step} works on columns, and {self.giver} gives it rows."
            " Columns come from sources that read columns (files.parquet) and from map_batches; every other step gives"
            " rows, and from columns takes each record as a dict. Put map_batches next to the source, or use map."
        )


class BadDuration(JobError):
    """Something that is no length of time was given for one."""

    given: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.given} is no size of a window: {self.reason}."
            ' Write "500ms", "5s", "2min", "1h", a timedelta or seconds.'
        )


class BadSplits(JobError):
    """The splits that a job is to go on with are not those of its sources."""

    missing: tuple[str, ...]
    unknown: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"the job began with other sources than it has now: none is stored for {list(self.missing)}, and"
            f" {list(self.unknown)} are no sources any more. Give the sources their old names (name=), or start anew"
            " with --overwrite."
        )
