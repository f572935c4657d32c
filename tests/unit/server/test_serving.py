"""The start of a server: what it refuses, what it warns of, and what it leaves to its jobs."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from pathlib import Path

import pytest

from clonos.cli import main
from clonos.core.model.errors import ClonosError
from clonos.server.register.register import RegisterFailed, RegisterInUse
from clonos.server.serving import AddressUnfit, ServeOptions, serve

TOKEN = "t" * 20


def _refused(options: ServeOptions) -> ClonosError:
    with pytest.raises(ClonosError) as raised:
        serve(options, _ignore)
    return raised.value


def _ignore(_line: str) -> None:
    pass


def test_tls_needs_a_certificate_and_its_key(tmp_path: Path) -> None:
    error = _refused(ServeOptions(tmp_path, 0, token=TOKEN, tls_cert=tmp_path / "cert.pem"))
    assert isinstance(error, AddressUnfit)
    assert "TLS needs both --tls-cert and --tls-key" in str(error)


def test_a_file_without_a_certificate_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    file.write_text("no certificate")
    error = _refused(ServeOptions(tmp_path / "F", 0, token=TOKEN, tls_cert=file, tls_key=file))
    assert isinstance(error, AddressUnfit)
    missing = _refused(ServeOptions(tmp_path / "F", 0, token=TOKEN, tls_cert=tmp_path / "no.pem", tls_key=file))
    assert "no.pem does not exist" in str(missing)


def test_a_folder_has_one_server(tmp_path: Path) -> None:
    with (tmp_path / "server.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        error = _refused(ServeOptions(tmp_path, 0, token=TOKEN))
    assert isinstance(error, RegisterInUse)
    assert f"another server uses the folder {tmp_path}" in str(error)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in str(_refused(ServeOptions(tmp_path, port, token=TOKEN)))


def test_another_address_than_loopback_without_tls_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ServeOptions(tmp_path, 0, host="0.0.0.0", token=TOKEN, register="mysql://nobody")
    with caplog.at_level(logging.WARNING, "clonos.server"):
        assert isinstance(_refused(options), RegisterFailed)
    assert "listens on 0.0.0.0 without TLS" in caplog.text


def test_the_tokens_leave_the_environment_of_the_server_and_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLONOS_TOKEN", TOKEN)
    monkeypatch.setenv("CLONOS_READ_TOKEN", "r" * 20)
    assert isinstance(_refused(ServeOptions(tmp_path, 0, register="mysql://nobody")), RegisterFailed)
    assert not {"CLONOS_TOKEN", "CLONOS_READ_TOKEN"} & os.environ.keys()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--token", "short"], 1, "the token of --token needs at least 16 printable ASCII characters"),
        (["--token", TOKEN, "--register", "mysql://nobody"], 3, "neither a path nor a URL of PostgreSQL"),
    ],
)
def test_a_start_that_fails_has_one_sentence_and_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, sentence: str
) -> None:
    assert main(["serve", "--folder", str(tmp_path / "F"), "--port", "0", *options]) == code
    printed = capsys.readouterr().err
    assert sentence in printed
    assert len(printed.splitlines()) == 1
