"""Errors of sources of Iceberg tables: what they read is gone, or is not what the job can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clonos.connectors.connector_errors import InputUnreadable, InvalidConnector
from clonos.core.model.errors import ClonosError, EnvironmentFault, JobError


class SnapshotGone(EnvironmentFault):
    """A snapshot that a job reads, or a file of it, is not there any more."""

    table: str
    snapshot: int
    reason: str

    def __str__(self) -> str:
        return (
            f"snapshot {self.snapshot} of the Iceberg table {self.table} cannot be read any more: {self.reason}. Let"
            " the table keep its snapshots for longer than a job runs or may be behind, and start afresh with"
            " --overwrite."
        )


class TableReplaced(EnvironmentFault):
    """The table of a name is another one than when the job first started."""

    table: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"the Iceberg table {self.table} is not that of the first start: its identity was {self.expected},"
            f" and is {self.actual}. It was dropped and made again, or name= or catalog= is of another table. Start"
            " afresh with --overwrite."
        )


class AppendsUnknown(JobError):
    """A snapshot of an Iceberg table does more than to append rows that the job knows."""

    table: str
    snapshot: int
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"snapshot {self.snapshot} of the Iceberg table {self.table} {self.reason}. {self.advice}"


@contextmanager
def reading_table(connector: str, place: str) -> Iterator[None]:
    """Wraps code that reads a catalog, or the manifests of a table.

    Raises: InputUnreadable: they cannot be read. InvalidConnector: the table has what pyiceberg does not read.
    """
    try:
        yield
    except ClonosError:
        raise
    except Exception as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, ValueError):  # such as deletes by equality
            problem = f"the table {place} cannot be read: {problem}"
            raise InvalidConnector(connector, problem, "Rewrite its files.") from None
        raise InputUnreadable(place, problem) from error
