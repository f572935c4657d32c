"""Finds Toxiproxy's server: on the PATH, built by Go, or downloaded as a pinned release; caches the program."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Final

from clonos.core.model.errors import EnvironmentFault

VERSION: Final = "2.12.0"
PROGRAM: Final = "toxiproxy-server"
GO_PACKAGE: Final = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
RELEASES: Final = f"https://github.com/Shopify/toxiproxy/releases/download/v{VERSION}"
SUMS: Final = {
    "linux_amd64": "65e042d3fc2290c099527bc506446a6fd863a09f113b8944b636ece70221c2b3",
    "linux_arm64": "ab417dafc77ae8b54ec8461cc5da5180d0465a61dcbda86c72da72ee4ab843b7",
    "darwin_amd64": "52ac1f99d7204b4b523f910b791bc86318b50ef94822c79a6157606704003ced",
    "darwin_arm64": "cece3905c06ad84d6b3bb4cd024c344e6466736b2a8cbaf9ef4fe45e62aba9b2",
}
"""SHA-256 of ``toxiproxy_<version>_<platform>.tar.gz``."""

ARCHITECTURES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
CACHE_VARIABLE: Final = "XDG_CACHE_HOME"
BUILD_TIMEOUT_S: Final = 600.0
DOWNLOAD_TIMEOUT_S: Final = 60.0
ARCHIVE_BYTES_MAX: Final = 100 << 20


class ToxiproxyMissing(EnvironmentFault):
    """No Toxiproxy server can be obtained."""

    reason: str

    def __str__(self) -> str:
        return (
            f"this scenario needs Toxiproxy, and there is none ({self.reason}): put {PROGRAM} on the PATH, or install"
            f" Go, so that `go install {GO_PACKAGE}` can build it, or put the server of {RELEASES} at"
            f" {cached_server()}."
        )


def cached_server() -> Path:
    """Returns the path of a server that was built or downloaded."""
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache")
    return cache / "clonos" / f"toxiproxy-{VERSION}" / "server"


def find_server(may_fetch: bool = True, *, releases: str = RELEASES) -> Path:
    """Returns the path of the server. Raises ToxiproxyMissing: it cannot be found, built or downloaded."""
    found = shutil.which(PROGRAM)
    if found:
        return Path(found)
    cached = cached_server()
    if cached.is_file():
        return cached
    if not may_fetch:
        raise ToxiproxyMissing("fetching is not allowed here")
    cached.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for fetch in (_build, partial(_download, releases)):
        try:
            fetch(cached)
            return cached
        except (OSError, subprocess.SubprocessError, EnvironmentFault) as error:
            reasons.append(" ".join(str(error).split())[:200])
    raise ToxiproxyMissing("; ".join(reasons))


def _build(server: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise EnvironmentFault("Go is not installed")
    environment = os.environ | {"GOBIN": str(server.parent)}
    built = subprocess.run(
        [go, "install", GO_PACKAGE], env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
    )
    if not server.is_file():
        raise EnvironmentFault(f"go install failed: {built.stderr.strip()[-150:]}")


def _download(releases: str, server: Path) -> None:
    platform_name = f"{sys.platform}_{ARCHITECTURES.get(platform.machine().lower(), platform.machine())}"
    if platform_name not in SUMS:
        raise EnvironmentFault(f"no sum is known of a release for {platform_name}")
    install_release(f"{releases}/toxiproxy_{VERSION}_{platform_name}.tar.gz", SUMS[platform_name], server)


def install_release(url: str, sha256: str, server: Path) -> None:
    """Downloads an archive, checks its sum, and extracts the server. Raises EnvironmentFault or OSError."""
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as reply:
        archive = reply.read(ARCHIVE_BYTES_MAX)
    found = hashlib.sha256(archive).hexdigest()
    if found != sha256:
        raise EnvironmentFault(f"{url} has the sum {found}, but {sha256} is expected")
    with tarfile.open(fileobj=BytesIO(archive), mode="r:gz") as entries:
        names = [name for name in entries.getnames() if name.rpartition("/")[2] == PROGRAM]
        program = entries.extractfile(names[0]) if names else None
        if program is None:
            raise EnvironmentFault(f"{url} holds no {PROGRAM}")
        new = server.with_suffix(".new")
        new.write_bytes(program.read())
    new.chmod(0o755)
    os.replace(new, server)
