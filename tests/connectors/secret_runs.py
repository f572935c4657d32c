"""Runs of a job with a secret, as a user starts them, and the search for the secret in all that they write.

A run writes its store, output, metrics with the status, log, errors and the files of its slots.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import Popen
from typing import NamedTuple

from tests.processes.jobs.test_job_cli import LIMIT_S, Commands
from tests.processes.jobs.test_secrets import everything_in

VARIABLE = "SHOP_PASSWORD"
WRONG = "wr0ng-passw0rd-7731"
PRELUDE = f"""
from clonos import Job, codecs, files, kafka, mqtt, nats, postgres, rabbitmq, redis, secrets, web

PASSWORD = secrets.env("{VARIABLE}")
job = Job("copy", store="store", metrics="metrics.json")
"""


class Run(NamedTuple):
    """A run that has ended: its exit code, what it and ``clonos explain`` have printed, and what files have."""

    code: int
    shown: str
    written: bytes


def run_with_secret(
    folder: Path,
    program: str,
    secret: str,
    act: Callable[[Popen[str]], object] = lambda process: None,
    **variables: str,
) -> Run:
    """Runs a job after the `PRELUDE` with a secret in `VARIABLE`, and checks that neither texts nor files have it.

    ``act`` is called with the process while it runs. The file of the job may have the secret and is not searched.
    """
    code, own = folder / "code", folder / "run"
    code.mkdir()
    own.mkdir()
    (code / "copy_job.py").write_text(PRELUDE + program, "utf-8")
    file = str(code / "copy_job.py")
    # A short path, because sockets lie in it.
    with closing(Commands(own)) as commands, tempfile.TemporaryDirectory() as of_slots:
        named = {VARIABLE: secret, "TMPDIR": of_slots, **variables}
        process = commands.start("run", "--verbose", file, "--slots", "process", **named)
        act(process)
        output, errors = process.communicate(timeout=LIMIT_S)
        _, plan, notes = commands.run("explain", file, **named)
        written = everything_in(Path(of_slots)) + everything_in(own)
    run = Run(process.returncode, output + errors + plan + notes, written)
    check_absence(secret, run.shown.encode() + run.written)
    assert b"metrics.json" in run.written or run.code != 0
    return run


def check_absence(secret: str, written: bytes) -> None:
    """Checks that bytes have a secret neither as it is nor as HTTP and brokers encode it."""
    for form in (secret.encode(), base64.b64encode(secret.encode()).rstrip(b"="), secret.encode().hex().encode()):
        assert form not in written, written[max(0, (at := written.index(form)) - 500) : at]
