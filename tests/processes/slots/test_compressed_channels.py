"""On real processes: channels are compressed according to the option, and records arrive unchanged."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, values
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.options import Compression, Options
from tests.processes.harness.cutting_proxy import Proxy
from tests.processes.harness.running_job import running

pytestmark = pytest.mark.processes

ROWS = [f"{number:6} " + "the quick brown fox jumps over the lazy dog " * 25 for number in range(1_000)]
CONTENT_BYTES = sum(map(len, ROWS))


def _checksum(row: str) -> int:
    return zlib.crc32(row.encode())


class CountingProxy(Proxy):
    """Adds what it forwards to a file of its process."""

    def __init__(self, target: str, file: Path) -> None:
        self._file = file
        super().__init__(target)

    def passes(self, data_bytes: int) -> None:
        with self._file.open("a") as file:
            file.write(f"{data_bytes}\n")


class Counted:
    """An address rewriter that leads all that a slot sends through proxies which count it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._proxies: dict[str, str] = {}

    def __call__(self, _peer: int, address: str) -> str:
        if address not in self._proxies:
            file = self.folder / f"{os.getpid()}-{len(self._proxies)}.sent"
            self._proxies[address] = CountingProxy(address, file).address
        return self._proxies[address]


def _sent_bytes(folder: Path, compress: Compression) -> int:
    """Bytes that the slots of a job send for rows that cross slots."""
    folder.mkdir()
    graph, output = JobGraph("compressed"), collect()
    rewriter: Callable[[int, str], str] = Counted(folder)
    graph.source(values(ROWS)).rebalance().map(_checksum).sink(output)
    with running(graph, folder, Options(compress=compress), tcp=True, rewriter=rewriter) as job:
        assert isinstance(job.end(), JobDone)
    assert sorted(output.rows) == sorted(map(_checksum, ROWS))
    return sum(int(line) for file in folder.glob("*.sent") for line in file.read_text().splitlines())


def test_channels_are_compressed_according_to_the_option(tmp_path: Path) -> None:
    assert _sent_bytes(tmp_path / "remote", Compression.REMOTE) > CONTENT_BYTES  # all slots are on one host
    assert _sent_bytes(tmp_path / "always", Compression.ALWAYS) < CONTENT_BYTES // 2
