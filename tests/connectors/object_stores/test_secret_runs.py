"""Runs with credentials of an object store write them nowhere, the objects of the store and of the output included."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from clonos.connectors import files
from tests.connectors.object_stores.objects import contents, put
from tests.connectors.secret_runs import Run, check_absence, run_with_secret
from tests.harnesses.file_server import FileServer
from tests.harnesses.s3_server import S3Server
from tests.harnesses.sftp_server import PASSWORD, USER, SftpServer

pytestmark = [pytest.mark.connectors, pytest.mark.keeps_sockets]

SECRET, TOKEN = "s3cret-key-of-the-bucket-4409", "t0ken-of-the-session-9214"
PROGRAM = """
job = Job("copy", store="{store}", metrics="metrics.json")
rows = job.source(files.jsonl("{given}"))
rows.sink(files.jsonl("{results}"))
"""


COPY = """
job.source(files.lines("{url}")).sink(files.jsonl("out"))
"""


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_run_that_reads_from_a_web_server_with_a_login_writes_it_nowhere(tmp_path: Path, is_refused: bool) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "words.txt").write_text("to\nbe\n", "utf-8")
    server = FileServer(tmp_path / "served")
    login = base64.b64encode(f"ann:{SECRET}".encode()).decode()
    server.login = f"Basic {login}" if not is_refused else "Basic of-another-user"
    netrc = _netrc(tmp_path, f"machine 127.0.0.1 login ann password {SECRET}\n")
    try:
        run = run_with_secret(tmp_path, COPY.format(url=server.url("words.txt")), SECRET, NETRC=str(netrc))
    finally:
        server.close()
    assert f"Basic {login}" in server.logins
    _check_copy(tmp_path, run, login, is_refused, server.address)


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_run_that_reads_from_an_sftp_server_with_a_login_writes_it_nowhere(tmp_path: Path, is_refused: bool) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "words.txt").write_text("to\nbe\n", "utf-8")
    server = SftpServer(tmp_path / "served")
    secret = SECRET if is_refused else PASSWORD
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").write_text(server.known_host)
    netrc = _netrc(tmp_path, f"machine 127.0.0.1 login {USER} password {secret}\n")
    program = COPY.format(url=server.url("words.txt"))
    home = str(tmp_path)
    try:
        run = run_with_secret(tmp_path, program, secret, HOME=home, NETRC=str(netrc), SSH_AUTH_SOCK="")
    finally:
        server.close()
    _check_copy(tmp_path, run, secret, is_refused, str(server.port))


def _netrc(folder: Path, text: str) -> Path:
    (folder / ".netrc").write_text(text)
    (folder / ".netrc").chmod(0o600)
    return folder / ".netrc"


def _check_copy(folder: Path, run: Run, login: str, is_refused: bool, place: str) -> None:
    """Checks that a run has copied the words, or was refused, and that what it has written does not have the login."""
    check_absence(login, run.shown.encode() + run.written)
    assert (run.code == 0) is not is_refused, run.shown
    assert place in run.shown
    if not is_refused:
        assert list(files.read_committed(folder / "run" / "out")) == ["to", "be"]


@pytest.mark.parametrize("bucket", ["bucket", "missing"])
def test_a_run_with_credentials_writes_them_nowhere(tmp_path: Path, s3: S3Server, bucket: str) -> None:
    put(s3, f"{bucket}-run/in/words.jsonl", b'"to"\n"be"\n')
    places = {"store": "store", "given": "in/*.jsonl", "results": "out"}
    urls = {
        name: s3.url(f"{bucket}-run/{key}").replace("s3://bucket", f"s3://{bucket}") for name, key in places.items()
    }
    run = run_with_secret(
        tmp_path, PROGRAM.format(**urls), SECRET, AWS_SECRET_ACCESS_KEY=SECRET, AWS_SESSION_TOKEN=TOKEN
    )
    objects = contents(s3, f"{bucket}-run")
    everything = run.shown.encode() + run.written + repr(objects).encode()
    check_absence(SECRET, everything)
    check_absence(TOKEN, everything)
    assert (run.code == 0) is (bucket == "bucket"), run.shown
    written = b"".join(content for key, content in objects.items() if key.startswith("out/"))
    assert sorted(written.splitlines()) == ([b'"be"', b'"to"'] if bucket == "bucket" else [])
    assert f"s3://{bucket}" in run.shown
