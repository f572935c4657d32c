"""Toxiproxy's server: found or downloaded with the right checksum; the error names all three remedies."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from clonos.core.model.errors import EnvironmentFault
from clonos_chaos.real import toxiproxy_server
from clonos_chaos.real.toxiproxy_server import (
    CACHE_VARIABLE,
    SUMS,
    ToxiproxyMissing,
    cached_server,
    find_server,
    install_release,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Toxiproxy, without Go, and with an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path


def _archive(folder: Path, name: str, file: str = "release.tar.gz", content: bytes = b"#!ok") -> tuple[str, str]:
    """The address and the sum of a release that holds one file."""
    path = folder / file
    with tarfile.open(path, "w:gz") as entries:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        entries.addfile(entry, io.BytesIO(content))
    return path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest()


class Site(NamedTuple):
    """An HTTP server for the files of a folder; ``asked`` has the paths of the requests."""

    folder: Path
    asked: list[str]
    url: str


@pytest.fixture
def site(nothing_there: Path) -> Iterator[Site]:
    """A site of releases on this machine."""
    folder = nothing_there / "site"
    folder.mkdir()
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, name="site")
    thread.start()
    yield Site(folder, asked, f"http://127.0.0.1:{server.server_address[1]}")
    server.shutdown()
    thread.join()
    server.server_close()


RELEASE = f"toxiproxy_{toxiproxy_server.VERSION}_linux_amd64.tar.gz"
SERVER = b"#!/bin/sh\necho made up\n"


@pytest.fixture(autouse=True)
def _on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("sys.platform", "linux")


def test_a_pinned_release_is_downloaded_once_and_its_program_runs(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _, sha256 = _archive(site.folder, "toxiproxy-server", RELEASE, SERVER)
    monkeypatch.setitem(SUMS, "linux_amd64", sha256)
    for _ in range(2):
        assert find_server(releases=site.url) == cached_server()
    assert site.asked == [f"/{RELEASE}"]
    assert subprocess.run([cached_server()], capture_output=True, check=True).stdout == b"made up\n"


def test_a_download_with_a_wrong_checksum_is_not_installed_and_all_reasons_are_reported(
    site: Site,
) -> None:
    _, sha256 = _archive(site.folder, "toxiproxy-server", RELEASE, SERVER)
    with pytest.raises(ToxiproxyMissing, match=f"Go is not installed; .*{RELEASE} has the sum {sha256}"):
        find_server(releases=site.url)
    assert site.asked == [f"/{RELEASE}"]
    assert not cached_server().exists()


def test_a_missing_release_is_reported(site: Site) -> None:
    with pytest.raises(ToxiproxyMissing, match="404"):
        find_server(releases=site.url)
    assert not cached_server().exists()


def test_a_missing_server_is_reported_in_one_line_with_three_remedies(nothing_there: Path) -> None:
    with pytest.raises(ToxiproxyMissing, match=r"on the PATH.*`go install .*`.*releases.* at .*cache") as caught:
        find_server(may_fetch=False)
    assert "\n" not in str(caught.value)


def test_a_server_on_the_path_is_preferred_to_the_installed_one(nothing_there: Path) -> None:
    cached_server().parent.mkdir(parents=True)
    cached_server().touch()
    assert find_server(may_fetch=False) == cached_server()
    own = nothing_there / "toxiproxy-server"
    own.touch(0o755)
    assert find_server(may_fetch=False) == own


def test_a_release_with_the_right_checksum_is_installed(tmp_path: Path) -> None:
    url, sha256 = _archive(tmp_path, "toxiproxy-server")
    install_release(url, sha256, tmp_path / "server")
    assert (tmp_path / "server").read_bytes() == b"#!ok"
    assert os.access(tmp_path / "server", os.X_OK)


def test_a_release_with_a_wrong_checksum_or_without_a_server_is_refused(tmp_path: Path) -> None:
    url, sha256 = _archive(tmp_path, "readme")
    with pytest.raises(EnvironmentFault, match=f"has the sum {sha256}, but {SUMS['linux_amd64']} is expected"):
        install_release(url, SUMS["linux_amd64"], tmp_path / "server")
    with pytest.raises(EnvironmentFault, match="holds no toxiproxy-server"):
        install_release(url, sha256, tmp_path / "server")
    assert not (tmp_path / "server").exists()
