"""What can be wrong with an input or an output: the class says whose fault it is, the message where and what to do."""

from __future__ import annotations

from clonos.core.model.errors import EnvironmentFault, InternalError, JobError

RECORD_CHARACTERS_MAX = 200


class ConnectorMisused(JobError):
    """A source or a sink was described in a way that it cannot work."""

    connector: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.connector}: {self.problem}. {self.advice}"


class InputMissing(JobError):
    """No file is there under a name or pattern that the job gave."""

    pattern: str
    folder: str
    advice: str = ""

    def __str__(self) -> str:
        advice = self.advice or "Mend the path; * ? [] and ** stand for several files."
        return f"no file matches {self.pattern!r}, looked for from {self.folder!r}. {advice}"


class InputUnreadable(EnvironmentFault):
    """A file of the input cannot be opened or read here."""

    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the input file {self.path} cannot be read here: {self.reason}."
            " Every process of the job reads it by this path: it must be on each machine, or on a shared file system."
        )


class InputChanged(EnvironmentFault):
    """A file is not what it was when the job first looked at it, so that reading it again would give other records."""

    path: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"the input file {self.path} has changed since the job began: it had {self.expected}, now it has"
            f" {self.actual}. A replay would read other records. Put the file back as it was, with its time,"
            " and resume; or start afresh with --overwrite. Feed a job whole files, never growing ones."
        )


class InputMalformed(JobError):
    """The content of an input file is not what the source expects."""

    path: str
    offset_bytes: int
    reason: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset_bytes}: {self.reason}. {self.advice}"


class InputForeign(JobError):
    """The job is to go on with a file that its source does not name."""

    connector: str
    path: str
    patterns: tuple[str, ...]
    folder: str

    def __str__(self) -> str:
        return (
            f"the checkpoint store names {self.path!r} as an input of {self.connector}, and {', '.join(self.patterns)}"
            f" does not, from {self.folder!r}. Resume the job with the paths that it had, from the folder where it was"
            " started, or start afresh with --overwrite."
        )


class SplitMalformed(EnvironmentFault):
    """What the store keeps of an input cannot be used. ``what``: a split, or a position in one."""

    what: str
    data: bytes
    reason: str

    def __str__(self) -> str:
        return (
            f"the checkpoint store has {self.data[:80]!r} for a {self.what}, which cannot be used: {self.reason}."
            " Restore it from a backup, or start afresh with --overwrite."
        )


class OutputInUse(JobError):
    """A fresh start found an output that holds something already."""

    output: str
    content: str

    def __str__(self) -> str:
        return (
            f"the output folder {self.output} is in use: it holds {self.content}."
            " Go on with that job by --resume, replace its output by --overwrite, or name another folder."
        )


class OutputTaken(JobError):
    """An output belongs to another job than the one that writes to it."""

    output: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"the output {self.output} belongs to the job {self.actual}, not to {self.expected}."
            " Another start of a job has taken it over, or two jobs name the same folder: give each its own."
        )


class OutputFailed(EnvironmentFault):
    """An output cannot be written; what is committed stays, and nothing is lost."""

    path: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path} could not be {self.doing}: {self.reason}. What is committed stays visible and nothing is"
            " lost: mend the cause (free space, permissions, a folder that every process of the job reaches under"
            " this path), then go on with --resume."
        )


class OutputCorrupt(EnvironmentFault):
    """A file of a committed output is not what its manifest says."""

    path: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"{self.path} of a committed output is corrupt: expected {self.expected}, found {self.actual}."
            " Restore it from a backup, or go back with --resume --checkpoint N to a checkpoint before it."
        )


class OutputConflict(InternalError):
    """One checkpoint was to be committed twice with different content."""

    output: str
    checkpoint: int
    reason: str

    def __str__(self) -> str:
        return (
            f"checkpoint {self.checkpoint} cannot be committed to {self.output}: {self.reason}."
            " This is a bug of the runtime, please report it; what is visible was not touched."
        )


class RowNotWritable(JobError):
    """A sink got a row that its format cannot carry. ``index``: of the row among those written together."""

    output: str
    index: int
    row: str
    reason: str

    def __str__(self) -> str:
        return f"{self.output} cannot take the row {self.row}: {self.reason}."


class TableRefused(JobError):
    """The database does not take what the job gives it."""

    table: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the table {self.table} refused {self.doing}: {self.reason}. Nothing of this batch was written."
            " Mend the rows with a step before the sink, or the table."
        )


class TableUnavailable(EnvironmentFault):
    """The database cannot be used now."""

    table: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the database of the table {self.table} failed at {self.doing}: {self.reason}. Nothing is lost or written"
            " twice: see that it runs, has space and can be reached from every process of the job, then resume."
        )


def row_not_writable(output: str, index: int, row: object, reason: str) -> RowNotWritable:
    """The error for a row of any type, with as much of it as fits a line."""
    text = repr(row)
    if len(text) > RECORD_CHARACTERS_MAX:
        text = f"{text[:RECORD_CHARACTERS_MAX]}... ({len(text)} characters)"
    return RowNotWritable(output, index, text, reason)
