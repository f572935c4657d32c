"""Error of a writer that refuses a row."""

from __future__ import annotations

from clonos.core.model.errors import JobError


class RowNotWritable(JobError):
    """The format of a sink cannot hold a row. ``index`` is the position of the row in the batch that was written."""

    output: str
    index: int
    row: str
    reason: str

    def __str__(self) -> str:
        return f"{self.output} cannot write the row {self.row}: {self.reason}."
