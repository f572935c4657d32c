"""Errors of sources of Delta tables: what they read is gone, or is not what the job can read."""

from __future__ import annotations

from clonos.core.model.errors import EnvironmentFault, JobError


class DataFileGone(EnvironmentFault):
    """A data file that a source has to read is not there any more."""

    path: str
    version: int

    def __str__(self) -> str:
        return (
            f"the data file {self.path}, which version {self.version} of its Delta table needs, is not there any more:"
            " VACUUM removes files that the newest version does not need. Let it keep them for longer than a job may"
            " be behind (delta.deletedFileRetentionDuration), and start afresh with --overwrite and a later version."
        )


class VersionsGone(EnvironmentFault):
    """The log of a Delta table does not have a version any more, or not yet."""

    table: str
    version: int
    reason: str

    def __str__(self) -> str:
        return (
            f"the log of the Delta table {self.table} does not have version {self.version}, which the job reads next:"
            f" {self.reason}. Let the table keep its log for longer than a job may be behind"
            " (delta.logRetentionDuration), and start afresh with --overwrite and a later version."
        )


class ChangesUnknown(JobError):
    """A version of a Delta table has changes that cannot be told, or columns that the job does not know."""

    table: str
    version: int
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"version {self.version} of the Delta table {self.table} {self.reason}. {self.advice}"
