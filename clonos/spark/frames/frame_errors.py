"""Errors of DataFrames as input and output."""

from __future__ import annotations

from clonos.core.model.errors import JobError


class FrameFailed(JobError):
    """Spark could not compute or write a DataFrame. ``reason``: what Spark says of its task."""

    connector: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.connector}: Spark could not write the DataFrame, and nothing of it is used. Correct what failed and"
            f" start again: {self.reason}"
        )


class OutputWithdrawn(JobError):
    """A stream has read checkpoints of an output that the job has withdrawn since."""

    path: str
    checkpoint: int

    def __str__(self) -> str:
        return (
            f"the output {self.path} no longer has what this stream has read of it up to checkpoint {self.checkpoint}:"
            " the job went back to an earlier checkpoint, or has started afresh. Begin a new query with another"
            " checkpointLocation, and discard what this one has written."
        )
