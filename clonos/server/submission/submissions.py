"""Submissions of a server: from an upload to a job that counts as CREATED.

A job is unpacked and checked in the folder ``incoming``. Only then its folder moves to its place and its record into
the register, in this order, so that a crash leaves no job without files.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Final

import msgspec

from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.system.wall_clock import wall_ns
from clonos.server.job_status import JobStatus
from clonos.server.register.job_record import JobRecord
from clonos.server.register.register import Register
from clonos.server.submission.job_check import CheckOutcome
from clonos.server.submission.unpacking import SubmissionNotStored, SubmissionRefused, find_target, unpack
from clonos.server.supervision.job_folder import JobFolder, JobSpec

CHECK_MODULE: Final = "clonos.server.submission.job_check"
CHECK_TIMEOUT_S: Final = 60.0
CHECKS_MAX: Final = 2
"""Checks at the same time. Further submissions wait."""
JOB_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
NAME_CHARACTERS_MAX: Final = 32
RESERVED_OPTIONS: Final = ("resume", "overwrite", "checkpoint")
"""Options that the server sets itself."""


class Submissions:
    """Submissions into the jobs of a server. ``folder``: that of the server."""

    def __init__(self, register: Register, folder: Path, check_timeout_s: float = CHECK_TIMEOUT_S) -> None:
        self._register, self._jobs, self._incoming = register, folder / "jobs", folder / "incoming"
        self._check_timeout_s = check_timeout_s
        self._checks = threading.BoundedSemaphore(CHECKS_MAX)
        shutil.rmtree(self._incoming, ignore_errors=True)  # of submissions that a crash interrupted
        self._incoming.mkdir(mode=0o700)

    def submit(self, upload: IO[bytes], name: str, file: str | None, options: dict[str, str]) -> JobRecord:
        """Unpacks and checks a job, and adds it to the register. ``file``: FILE or FILE:NAME in an archive.

        Raises: SubmissionRefused. SubmissionNotStored: the machine cannot store or check it.
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
            with self._checks:
                outcome = self._check(incoming)
            return self._add(incoming, outcome, target, options)
        finally:
            shutil.rmtree(incoming.path, ignore_errors=True)

    def _check(self, folder: JobFolder) -> CheckOutcome:
        """Returns what loading the job has shown. Raises: SubmissionRefused."""
        command = [sys.executable, "-P", "-m", CHECK_MODULE, str(folder.path)]
        with subprocess.Popen(
            command,
            cwd=folder.files,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=self._check_timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise SubmissionRefused(
                    f"the job was not loaded within {self._check_timeout_s:.0f} s; loading a job must not run it."
                ) from None
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
        self._register.add(record)
        return record
