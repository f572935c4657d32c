"""A run writes the value of a secret nowhere: store, files of slots, logs, plan, status, metrics, errors."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import pytest

from tests.processes.harness.running_program import run_program
from tests.processes.jobs.test_job_cli import Commands

pytestmark = pytest.mark.processes

VALUE = "xK7-secret-of-the-test-9qz"

PROGRAM = '''
import hashlib
from pathlib import Path

from clonos import Job, JobError, Registration, secrets, values


class Vault:
    """Immediate sink that needs a password, and notes its digest."""

    def __init__(self, password, file, fails):
        self.password, self.file, self.fails = password, file, fails

    def describe_output(self):
        return [("password", str(self.password))]

    def immediate_writer(self):
        return VaultWriter(self)


class VaultWriter:
    def __init__(self, sink):
        self.sink = sink

    def register(self, identity, restored_number):
        digest = hashlib.sha256(self.sink.password.reveal().encode()).hexdigest()
        Path(self.sink.file).write_text(digest)
        self.next_number = restored_number
        return Registration(restored_number, None)

    def write(self, first_number, rows):
        if self.sink.fails:
            raise JobError(f"{self.sink.password} was refused")
        self.next_number = max(self.next_number, first_number + len(rows))
        return self.next_number

    def close(self):
        pass


job = Job("vault", store="store", metrics="metrics.json")
job.source(values(range(100))).sink(Vault(secrets.env("VAULT_PASSWORD"), DIGEST, FAILS))
'''


def everything_in(folder: Path) -> bytes:
    """All bytes of all files, and the names of these files."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return b"".join(os.fsencode(file) + file.read_bytes() for file in files)


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_writes_the_value_of_a_secret_nowhere(tmp_path: Path, fails: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "vault.py").write_text(
        PROGRAM.replace("FAILS", str(fails)).replace("DIGEST", repr(str(folder / "digest")))
    )
    variables = {"VAULT_PASSWORD": VALUE}
    commands = Commands(folder)
    with tempfile.TemporaryDirectory() as own:  # a short path, because sockets lie in it
        code, output, errors = commands.run(
            "run", "--verbose", "vault.py", "--slots", "process", TMPDIR=own, **variables
        )
        written = everything_in(Path(own))
    commands.close()
    assert (code == 0) is not fails, errors
    assert (folder / "digest").read_text() == hashlib.sha256(VALUE.encode()).hexdigest()
    shown = output + errors
    for form in ("text", "json", "mermaid"):
        plan, notes = run_program(folder, "-m", "clonos.cli", "explain", "vault.py", "--format", form, **variables)
        shown += plan + notes
    assert "vault" in shown
    assert VALUE not in shown
    assert list((folder / "store").rglob("*"))
    written += everything_in(folder)
    assert b"VAULT_PASSWORD" in written
    assert VALUE.encode() not in written
