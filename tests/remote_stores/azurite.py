"""Azure Blob Storage on loopback: Azurite, Microsoft's emulator. It needs npm, and once the network: it is installed
into ``build/azurite``.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import AzureFileSystem

PACKAGE = "azurite@3.37.0"
INSTALLED = Path(__file__).parent.parent.parent / "build" / "azurite"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, and its key, which Microsoft has published."""
STARTED = "successfully listens on http://"


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """The address of the emulator; there is a container ``container``. It lives as long as the block."""
    program = INSTALLED / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        print(f"installing {PACKAGE} into {INSTALLED}", file=sys.stderr)
        INSTALLED.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["npm", "install", "--prefix", str(INSTALLED), "--no-audit", "--no-fund", "--ignore-scripts", PACKAGE],
            check=True,
        )
    log = folder / "azurite.log"
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with log.open("wb") as output:
        process = subprocess.Popen([program, *options, "--inMemoryPersistence"], stdout=output, stderr=output)
    try:
        address = _await_start(process, log)
        _create_container(address)
        yield f"http://{address}/{ACCOUNT}"
    finally:
        process.kill()
        process.wait()


def _await_start(process: subprocess.Popen[bytes], log: Path) -> str:
    looked = threading.Event()
    for _ in range(600):
        written = log.read_text("utf-8")
        if STARTED in written and written.endswith("\n"):
            return written.partition(STARTED)[2].split()[0]
        assert process.poll() is None, written
        looked.wait(0.1)
    raise RuntimeError(f"the emulator did not start:\n{log.read_text('utf-8')}")


def _create_container(address: str) -> None:
    places = {"blob_storage_authority": address, "dfs_storage_authority": address}
    client = AzureFileSystem(ACCOUNT, account_key=KEY, blob_storage_scheme="http", dfs_storage_scheme="http", **places)
    client.create_dir("container")
