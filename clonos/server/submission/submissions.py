"""Submissions of a server: from an upload to a job that counts as CREATED.

A job is unpacked and checked in the folder ``incoming``. Only then its folder moves to its place and its record into
the register, in this order, so that a crash leaves no job without files.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

import msgspec

from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.system.readiness import wait_readable
from clonos.io.system.wall_clock import wall_ns
from clonos.job.job_status import JobStatus
from clonos.server.register.job_record import JobRecord
from clonos.server.register.register import JobRegister, RegisterFailed, RequestRefused
from clonos.server.submission.job_check import CheckOutcome
from clonos.server.submission.unpacking import SubmissionNotStored, SubmissionRefused, find_target, unpack
from clonos.server.supervision.job_folder import JobFolder, JobSpec

CHECK_MODULE: Final = "clonos.server.submission.job_check"
CHECK_TIMEOUT_S: Final = 60.0
OUTPUT_BYTES_MAX: Final = 64 << 10
"""Bytes at the end of what a check has written that are read."""
ADD_TRIES: Final = 5
ADD_PAUSE_S: Final = 0.5
JOB_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
NAME_CHARACTERS_MAX: Final = 32
RESERVED_OPTIONS: Final = ("resume", "overwrite", "checkpoint")
"""Options that the server sets itself."""


class Submissions:
    """Submissions into the jobs of a server. ``folder``: that of the server."""

    def __init__(self, register: JobRegister, folder: Path, check_timeout_s: float = CHECK_TIMEOUT_S) -> None:
        self._register, self._jobs, self._incoming = register, folder / "jobs", folder / "incoming"
        self._check_timeout_s = check_timeout_s
        shutil.rmtree(self._incoming, ignore_errors=True)  # of submissions that a crash interrupted
        self._incoming.mkdir(mode=0o700)

    def submit(self, upload: IO[bytes], name: str, file: str | None, options: dict[str, str]) -> JobRecord:
        """Unpacks and checks a job, and adds it to the register. ``file``: FILE or FILE:NAME in an archive.

        Raises: SubmissionRefused. SubmissionNotStored: the machine cannot store or check it. RegisterFailed.
        """
        try:
            return self._submit(upload, name, file, options)
        except OSError as error:
            raise SubmissionNotStored(error.strerror or str(error)) from error

    def _submit(self, upload: IO[bytes], name: str, file: str | None, options: dict[str, str]) -> JobRecord:
        """Raises: SubmissionRefused. OSError."""
        for key in RESERVED_OPTIONS:
            if key in options:
                raise SubmissionRefused(f"the option {key} is the server's: each start resumes.")
        incoming = JobFolder(self._incoming / secrets.token_hex(8))
        incoming.create()
        try:
            target = find_target(unpack(upload, name, incoming.files), file)
            incoming.write_spec(JobSpec("", target, options))
            outcome = self._check(incoming)
            return self._add(incoming, outcome, target, options)
        finally:
            shutil.rmtree(incoming.path, ignore_errors=True)

    def _check(self, folder: JobFolder) -> CheckOutcome:
        """Returns what loading the job has shown. Raises: SubmissionRefused."""
        command = [sys.executable, "-P", "-m", CHECK_MODULE, str(folder.path)]
        with TemporaryFile(dir=folder.path) as written, TemporaryFile(dir=folder.path) as failed:  # nobody reads a pipe
            process = subprocess.Popen(
                command,
                cwd=folder.files,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=failed,
                start_new_session=True,
            )
            if not _ended_with_group(process, self._check_timeout_s):
                raise SubmissionRefused(
                    f"the job was not loaded within {self._check_timeout_s:.0f} s; loading a job must not run it."
                )
            output, errors = _tail(written), _tail(failed)
        try:
            outcome = msgspec.json.decode(output.rstrip().rpartition(b"\n")[2], type=CheckOutcome)
        except DECODE_ERRORS:
            last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise SubmissionRefused(f"the process that loads the job has died: {last:.300}") from None
        if outcome.error:
            raise SubmissionRefused(outcome.error)
        if not JOB_NAME.fullmatch(outcome.name):  # a job's code may write its own outcome
            raise SubmissionRefused(f"{outcome.name!r:.100} is not the name of a job.")
        return outcome

    def _add(self, incoming: JobFolder, outcome: CheckOutcome, target: str, options: dict[str, str]) -> JobRecord:
        job_id = f"{outcome.name[:NAME_CHARACTERS_MAX]}-{secrets.token_hex(4)}"
        incoming.write_spec(JobSpec(job_id, target, options, outcome.slots))
        os.rename(incoming.path, self._jobs / job_id)
        record = JobRecord(job_id, outcome.name, JobStatus.CREATED, wall_ns() // 1_000_000, target, options)
        try:
            self._add_surely(record)
        except RegisterFailed:
            JobFolder(self._jobs / job_id).remove()
            raise
        return record

    def _add_surely(self, record: JobRecord) -> None:
        """Adds a record, again if the register fails meanwhile. Raises: RegisterFailed."""
        pause = threading.Event()
        for tries_left in reversed(range(ADD_TRIES)):
            try:
                self._register.add(record)
                return
            except RequestRefused:  # an earlier try has added it, although it failed
                return
            except RegisterFailed:
                if not tries_left:
                    raise
            pause.wait(ADD_PAUSE_S)


def _ended_with_group(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Waits for the end of a process, and ends what it has left in its group. Returns False if it had to be ended."""
    descriptor = os.pidfd_open(process.pid) if hasattr(os, "pidfd_open") else None
    try:
        if descriptor is not None:
            has_ended = wait_readable(descriptor, limit_s)  # its number stays taken until the group has ended
        else:
            with suppress(subprocess.TimeoutExpired):
                process.wait(limit_s)
            has_ended = process.returncode is not None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if descriptor is not None:
            os.close(descriptor)
    return has_ended


def _tail(file: IO[bytes]) -> bytes:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - OUTPUT_BYTES_MAX))
    return file.read(OUTPUT_BYTES_MAX)
