"""Errors of sources and sinks: the class says whose fault it is, the message says where and what to do."""

from __future__ import annotations

from clonos.core.model.errors import EnvironmentFault, InternalError, JobError
from clonos.operators.row_errors import ERRORS_ADVICE, RecordError
from clonos.operators.row_errors import RowNotWritable as RowNotWritable

RECORD_CHARACTERS_MAX = 200


class InvalidConnector(JobError):
    """The options of a source or a sink cannot work."""

    connector: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.connector}: {self.problem}. {self.advice}"


def check_number(connector: str, option: str, value: object, what: str, largest: int | None = None) -> None:
    """Checks an option that counts something. ``what``: the unit, in the plural.

    Raises: InvalidConnector: the value is not an int from 1 to the largest.
    """
    if type(value) is not int or value < 1 or (largest is not None and value > largest):
        advice = f"Give a number of {what}, {'at least 1' if largest is None else f'from 1 to {largest}'}."
        raise InvalidConnector(connector, f"{option} is {value!r:.80}", advice)


class InputMissing(JobError):
    """A path or pattern of an input matches no file."""

    pattern: str
    folder: str
    advice: str = ""

    def __str__(self) -> str:
        advice = self.advice or "Correct the path; it may have the wildcards *, ?, [] and **."
        if self.pattern.startswith("~"):
            advice = f"Write os.path.expanduser({self.pattern!r}): only a shell knows what ~ is."
        return f"no file matches {self.pattern!r} (working folder: {self.folder!r}). {advice}"


class InputUnreadable(EnvironmentFault):
    """A file of the input cannot be opened or read on this machine."""

    path: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the input file {self.path} cannot be read here: {self.reason}. Every process of the job reads it by this "
            + ("URL." if "://" in self.path else "path: it must be on each machine, or on a shared file system.")
        )


class InputChanged(EnvironmentFault):
    """A file has changed since the job first read it, so a replay would give other records."""

    path: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"the input file {self.path} has changed since the job first started: it had {self.expected}, now it has"
            f" {self.actual}. A replay would read other records. Restore the file with its modification time,"
            " and resume, or start afresh with --overwrite. Move complete files into the input; never append to them."
        )


class InputMalformed(RecordError):
    """The content of an input file does not have the format that the source reads.

    ``is_one_record``: a line, which goes to the error output if there is one. ``line``: its number, 0 if not known.
    """

    path: str
    offset_bytes: int
    reason: str
    advice: str
    is_one_record: bool = False
    line: int = 0

    def __str__(self) -> str:
        return f"{self.set_aside_text()}{ERRORS_ADVICE if self.is_one_record else ''}"

    def set_aside_text(self) -> str:
        """See ``RecordError``."""
        line = f", line {self.line}" if self.line else ""
        return f"{self.path} at byte {self.offset_bytes}{line}: {self.reason}. {self.advice}"


class UnexpectedInput(JobError):
    """The store names an input file that the paths of the source do not cover."""

    connector: str
    path: str
    patterns: tuple[str, ...]
    folder: str

    def __str__(self) -> str:
        return (
            f"the checkpoint store names {self.path!r} as an input of {self.connector}, but none of"
            f" {', '.join(self.patterns)} in the folder {self.folder!r} matches it. Resume the job with its"
            " old paths, from the folder where it was started, or start afresh with --overwrite."
        )


class SplitMalformed(EnvironmentFault):
    """The store holds an unusable split or an unusable position in one; ``what`` names which."""

    what: str
    data: bytes
    reason: str

    def __str__(self) -> str:
        return (
            f"the checkpoint store has {self.data[:80]!r} as a {self.what}, which cannot be used: {self.reason}."
            " Restore it from a backup, or start afresh with --overwrite."
        )


class OutputInUse(JobError):
    """The output folder of a fresh start already holds something."""

    output: str
    content: str

    def __str__(self) -> str:
        return (
            f"the output folder {self.output} is in use: it holds {self.content}."
            " Continue that job with --resume, replace its output with --overwrite, or name another folder."
        )


class UnexpectedOutput(JobError):
    """The output of a fresh start has files of others. ``effect`` says what --overwrite does with them."""

    output: str
    content: str
    effect: str

    def __str__(self) -> str:
        return f"the output {self.output} {self.content}. Name another one, or start with --overwrite, {self.effect}."


class NotOutputOwner(JobError):
    """The output belongs to another job."""

    output: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"the output {self.output} belongs to the job {self.actual}, not to {self.expected}."
            " Another job has taken it over since, or two jobs write to the same folder: give each job its own folder."
        )


class OutputFailed(EnvironmentFault):
    """An output cannot be written. Committed output stays visible, and nothing is lost."""

    path: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path} could not be {self.doing}: {self.reason}. Committed output stays visible and nothing is"
            " lost: remove the cause (free space, permissions, a folder that every process of the job reaches under"
            " this path), then continue with --resume."
        )


class OutputUnusable(OutputFailed):
    """The place of an output cannot be used when the job starts for the first time."""

    def __str__(self) -> str:
        return (
            f"{self.path} could not be {self.doing}: {self.reason}. Nothing has been written: name another place, or"
            " remove the cause (free space, permissions, a folder above it that is missing or is a file)."
        )


class OutputClosed(EnvironmentFault):
    """The program that read the output of the driver has ended."""

    output: str

    def __str__(self) -> str:
        return (
            f"{self.output} is closed: the program that read it has ended. Nothing else is lost: continue with"
            " --resume, which prints the rows from the last checkpoint on."
        )


class OutputCorrupt(EnvironmentFault):
    """A file of a committed output differs from its manifest."""

    path: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return (
            f"{self.path} of a committed output is corrupt: expected {self.expected}, found {self.actual}."
            " Restore it from a backup, or go back to an earlier checkpoint with --resume --checkpoint N."
        )


class OutputConflict(InternalError):
    """A checkpoint is committed a second time with different content."""

    output: str
    checkpoint: int
    reason: str

    def __str__(self) -> str:
        return (
            f"checkpoint {self.checkpoint} cannot be committed to {self.output}: {self.reason}."
            " This is a bug in clonos, please report it; the visible output was not changed."
        )


class OutputNameTaken(JobError):
    """A record of ``files.whole`` has the name of another file of the output."""

    output: str
    checkpoint: int
    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"checkpoint {self.checkpoint} cannot show {self.name!r} in the output {self.output}: {self.reason}."
            " Nothing is replaced. Give each record a name of its own, and start afresh with --overwrite or"
            " go back with --resume --checkpoint; move a file of others away, and resume."
        )


class TableRefused(JobError):
    """The database rejects the rows of the job."""

    table: str
    doing: str
    reason: str

    def __str__(self) -> str:
        reason = " ".join(self.reason.split()).rstrip(".")
        if self.doing == "creating":
            return f"the table {self.table} cannot be created: {reason}. Correct columns= or the rights of the user."
        return (
            f"the table {self.table} refused {self.doing}: {reason}. No row of this batch was written."
            " Correct the rows in a step before the sink, or change the table."
        )


class RegistrationLost(JobError):
    """The registration of a sink task, which has the number of its next row, was deleted while the job ran."""

    table: str
    task: str

    def __str__(self) -> str:
        return (
            f"the registration of {self.task} in the database of the table {self.table} was deleted by someone else."
            " Which rows the table has cannot be known any more, so nothing is written. Leave clonos_registrations"
            " alone; to go on, start afresh with --overwrite."
        )


class TableUnavailable(EnvironmentFault):
    """The database cannot be reached or used."""

    table: str
    doing: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the database of the table {self.table} failed at {self.doing}: {self.reason}. No row is lost"
            " or written twice: check that the database runs, has space and is reachable from every process of the job,"
            " then resume."
        )


def part_not_writable(output: str, index: int, row: object, part: str, error: Exception) -> RowNotWritable:
    """Creates the error for a row of which a part, such as its key, cannot be made."""
    reason = error.set_aside_text() if isinstance(error, RecordError) else str(error) or type(error).__name__
    return row_not_writable(output, index, row, f"its {part}: {reason.rstrip('.')}")


def row_not_writable(output: str, index: int, row: object, reason: str) -> RowNotWritable:
    """Creates the error for a row of any type, cut to 200 characters."""
    try:
        text = repr(row)
    except Exception as error:  # noqa: BLE001  it is nested too deep, or has a user's __repr__
        text = f"<{type(row).__qualname__}, whose repr raised {type(error).__name__}>"
    if len(text) > RECORD_CHARACTERS_MAX:
        text = f"{text[:RECORD_CHARACTERS_MAX]}... ({len(text)} characters)"
    return RowNotWritable(output, index, text, reason)
