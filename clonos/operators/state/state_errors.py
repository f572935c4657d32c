"""Errors of stored state: it is damaged, cannot be stored, or was stored in another form."""

from __future__ import annotations

from clonos.core.model.errors import EnvironmentFault, JobError


class StateMalformed(EnvironmentFault):
    """Bytes of a snapshot are not changes of state."""

    reason: str

    def __str__(self) -> str:
        return (
            f"the changes of state in a snapshot cannot be read: {self.reason}."
            " Restore the object from a backup, or resume from an earlier checkpoint with --resume --checkpoint N."
        )


class StateUnsupported(JobError):
    """The state of a step holds a value that a snapshot cannot store."""

    table: str
    problem: str

    def __str__(self) -> str:
        return f"the state {self.table} cannot be stored: {self.problem}"


class StateOfOtherForm(JobError):
    """A table was stored with other types than the job has now, or as rows in place of columns."""

    table: str
    stored: str
    expected: str

    def __str__(self) -> str:
        return (
            f"the state {self.table} was stored as {self.stored}, and this version of the job keeps {self.expected}."
            " Give the step another name so that it begins with empty state, or resume with the version that stored it."
        )
