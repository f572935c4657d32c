"""Register of jobs over one database: SQLite or PostgreSQL.

The register is the truth over restarts of the server. Each change is one transaction, and a status changes only along
the table of transitions. An accepted request for an end is written before it is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from clonos.core.model.errors import EnvironmentFault, JobError
from clonos.core.wire.decoding import check_format
from clonos.job.job_status import JobStatus
from clonos.server.register.job_record import Intention, JobRecord
from clonos.server.register.transitions import JobEvent, next_status

Rows = Sequence[Sequence[Any]]

REGISTER_FORMAT: Final = 1
INTENTIONS: Final = {JobEvent.STOP: "stop", JobEvent.CANCEL: "cancel"}


class RegisterDatabase(Protocol):
    """Database of a register. ``?`` stands for a value in a statement."""

    def run(self, work: Callable[[Transaction], Any]) -> Any:
        """Runs ``work`` in one transaction and returns its result. Raises: RegisterFailed."""
        ...

    def close(self) -> None:
        """Closes the connection."""
        ...


class Transaction(Protocol):
    """Open transaction."""

    def __call__(self, sql: str, *values: object) -> Rows:
        """Runs a statement and returns its rows."""
        ...


class RegisterFailed(EnvironmentFault):
    """The database of the register does not answer, or refuses."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"the register in {self.where} failed: {self.reason}. Jobs that run go on; repair the database."


class RegisterInUse(EnvironmentFault):
    """Another server uses the register or its folder."""

    where: str

    def __str__(self) -> str:
        return f"another server uses {self.where}: stop it first, or give this one a folder and a register of its own."


class JobUnknown(JobError):
    """The register has no such job."""

    job_id: str

    def __str__(self) -> str:
        return f"there is no job {self.job_id!r} here: list the jobs with clonos jobs."


class RequestRefused(JobError):
    """The status of a job does not allow what is asked of it."""

    job_id: str
    status: str
    request: str

    def __str__(self) -> str:
        return f"job {self.job_id} is {self.status}, which does not allow {self.request}."


class JobRegister:
    """Register of all jobs of a server. May be used by several threads."""

    def __init__(self, database: RegisterDatabase, where: str) -> None:
        """Opens the register, and creates its tables. ``where``: how messages name it.

        Raises: FormatUnknown: another version wrote it. RegisterFailed.
        """
        self._database, self._where = database, where
        database.run(self._create)

    def _create(self, run: Transaction) -> None:
        run("CREATE TABLE IF NOT EXISTS clonos_register (version integer NOT NULL)")
        run("CREATE TABLE IF NOT EXISTS clonos_jobs (id text PRIMARY KEY, record text NOT NULL)")
        run(
            "CREATE TABLE IF NOT EXISTS clonos_documents"
            " (job text NOT NULL, name text NOT NULL, document text NOT NULL, PRIMARY KEY (job, name))"
        )
        versions = run("SELECT version FROM clonos_register")
        if not versions:
            run("INSERT INTO clonos_register (version) VALUES (?)", REGISTER_FORMAT)
        else:
            check_format(f"the register in {self._where}", versions[0][0], REGISTER_FORMAT)

    def close(self) -> None:
        """Closes the database."""
        self._database.close()

    # ------------------------------------------------------------------ reading

    def jobs(self) -> list[JobRecord]:
        """Returns all jobs, the latest first."""
        rows: Rows = self._database.run(lambda run: run("SELECT record FROM clonos_jobs"))
        records = [msgspec.json.decode(row[0], type=JobRecord) for row in rows]
        return sorted(records, key=lambda record: (record.created_at_ms, record.id), reverse=True)

    def job(self, job_id: str) -> JobRecord:
        """Returns a job. Raises: JobUnknown."""
        found: JobRecord = self._database.run(lambda run: _read(run, job_id))
        return found

    def document(self, job_id: str, name: str) -> bytes | None:
        """Returns what a driver of a job last reported under a name, as JSON; None if there is nothing."""
        sql = "SELECT document FROM clonos_documents WHERE job = ? AND name = ?"
        rows: Rows = self._database.run(lambda run: run(sql, job_id, name))
        return rows[0][0].encode("utf-8") if rows else None

    # ------------------------------------------------------------------ changing

    def add(self, record: JobRecord) -> None:
        """Adds a new job. Raises: RequestRefused: there is a job with its id."""

        def work(run: Transaction) -> None:
            if run("SELECT 1 FROM clonos_jobs WHERE id = ?", record.id):
                raise RequestRefused(record.id, "there", "another one")
            run("INSERT INTO clonos_jobs (id, record) VALUES (?, ?)", record.id, _text(record))

        self._database.run(work)

    def apply(self, job_id: str, event: JobEvent, **changes: object) -> JobRecord:
        """Lets an event happen to a job, along the table of transitions, and sets further fields of its record.

        Returns the record as it is then. An event that a final status ignores sets no field.

        Raises: JobUnknown. RequestRefused: the status has no row for the event.
        """

        def work(run: Transaction) -> JobRecord:
            record = _read(run, job_id)
            status = next_status(record.status, event)
            if status is None:
                raise RequestRefused(job_id, record.status, f"to {event}")
            if record.status.is_final:
                return record
            return _write(run, msgspec.structs.replace(record, status=status, **changes))

        found: JobRecord = self._database.run(work)
        return found

    def intend(self, job_id: str, event: JobEvent, savepoint: str | None = None, drain: bool = True) -> JobRecord:
        """Accepts a user's request for an end. A cancellation replaces a stop; a second stop changes nothing.

        Raises: JobUnknown. RequestRefused: the job's status does not allow it.
        """

        def work(run: Transaction) -> JobRecord:
            record = _read(run, job_id)
            status = next_status(record.status, event)
            if status is None:
                raise RequestRefused(job_id, record.status, f"to {event} it")
            verb = INTENTIONS[event]
            if record.intention is not None and (verb == "stop" or record.intention.verb == verb):
                return record
            return _write(
                run, msgspec.structs.replace(record, status=status, intention=Intention(verb, savepoint, drain))
            )

        found: JobRecord = self._database.run(work)
        return found

    def change(self, job_id: str, **changes: object) -> JobRecord:
        """Sets fields of a job's record other than its status. Raises: JobUnknown."""
        assert "status" not in changes, "a status changes by an event"
        found: JobRecord = self._database.run(
            lambda run: _write(run, msgspec.structs.replace(_read(run, job_id), **changes))
        )
        return found

    def remove(self, job_id: str) -> JobRecord:
        """Removes a job that has ended, and its documents; returns what its record was.

        Raises: JobUnknown. RequestRefused: it has not ended.
        """

        def work(run: Transaction) -> JobRecord:
            record = _read(run, job_id)
            if not record.status.is_final:
                raise RequestRefused(job_id, record.status, "to delete it: stop or cancel it first")
            run("DELETE FROM clonos_documents WHERE job = ?", job_id)
            run("DELETE FROM clonos_jobs WHERE id = ?", job_id)
            return record

        found: JobRecord = self._database.run(work)
        return found

    def keep(self, job_id: str, name: str, document: bytes) -> None:
        """Keeps what a driver has reported, in place of what it reported before."""
        sql = (
            "INSERT INTO clonos_documents (job, name, document) VALUES (?, ?, ?)"
            " ON CONFLICT (job, name) DO UPDATE SET document = excluded.document"
        )
        self._database.run(lambda run: run(sql, job_id, name, document.decode("utf-8")))


def is_accepted(status: JobStatus, event: JobEvent) -> bool:
    """Returns whether a status allows a request."""
    return next_status(status, event) is not None


def _read(run: Transaction, job_id: str) -> JobRecord:
    rows = run("SELECT record FROM clonos_jobs WHERE id = ?", job_id)
    if not rows:
        raise JobUnknown(job_id)
    return msgspec.json.decode(rows[0][0], type=JobRecord)


def _write(run: Transaction, record: JobRecord) -> JobRecord:
    run("UPDATE clonos_jobs SET record = ? WHERE id = ?", _text(record), record.id)
    return record


def _text(record: JobRecord) -> str:
    return msgspec.json.encode(record).decode("utf-8")
