"""Toxiproxy's server is taken from where it is; a download needs the right sum; the message names all three ways."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from clonos.core.errors import EnvironmentFault
from clonos_chaos.toxiproxy_server import (
    CACHE_VARIABLE,
    SUMS,
    ToxiproxyMissing,
    cached_server,
    find_server,
    install_release,
)


@pytest.fixture
def nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Toxiproxy, without Go, and with an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path


def _archive(folder: Path, name: str) -> tuple[str, str]:
    """The address and the sum of a release that holds one file."""
    path = folder / "release.tar.gz"
    with tarfile.open(path, "w:gz") as entries:
        entry = tarfile.TarInfo(name)
        entry.size = 4
        entries.addfile(entry, io.BytesIO(b"#!ok"))
    return path.as_uri(), hashlib.sha256(path.read_bytes()).hexdigest()


def test_one_line_names_the_three_ways_when_there_is_no_server(nothing_there: Path) -> None:
    with pytest.raises(ToxiproxyMissing, match=r"on the PATH.*`go install .*`.*releases.* at .*cache") as caught:
        find_server(may_fetch=False)
    assert "\n" not in str(caught.value)


def test_the_one_on_the_path_comes_first_and_then_the_one_that_is_kept(nothing_there: Path) -> None:
    cached_server().parent.mkdir(parents=True)
    cached_server().touch()
    assert find_server(may_fetch=False) == cached_server()
    own = nothing_there / "toxiproxy-server"
    own.touch(0o755)
    assert find_server(may_fetch=False) == own


def test_a_release_with_the_right_sum_is_installed(tmp_path: Path) -> None:
    url, sha256 = _archive(tmp_path, "toxiproxy-server")
    install_release(url, sha256, tmp_path / "server")
    assert (tmp_path / "server").read_bytes() == b"#!ok"
    assert os.access(tmp_path / "server", os.X_OK)


def test_a_release_with_another_sum_or_without_a_server_is_refused(tmp_path: Path) -> None:
    url, sha256 = _archive(tmp_path, "readme")
    with pytest.raises(EnvironmentFault, match=f"has the sum {sha256}, but {SUMS['linux_amd64']} is expected"):
        install_release(url, SUMS["linux_amd64"], tmp_path / "server")
    with pytest.raises(EnvironmentFault, match="holds no toxiproxy-server"):
        install_release(url, sha256, tmp_path / "server")
    assert not (tmp_path / "server").exists()
