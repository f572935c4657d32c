"""A word count over a list of files at `https://`, under kills of its tasks and an outage of the server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect, files
from clonos.core.coordinator.coordinator_effects import Ending, JobDone
from clonos.core.model.options import Options
from tests.connectors.servers.certificates import Authority
from tests.harnesses.file_server import FileServer
from tests.processes.harness.drawing_job import is_quiescent, kill, wait_for_checkpoint, wait_for_successors
from tests.processes.harness.running_job import running

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

OPTIONS = Options(checkpoint_every_ms=300, heartbeat_ms=50)
FILES, LINES = 8, 300
WORDS = ("to", "be", "or", "not")


class CountingJob:
    """Files that appear at a server -> their words -> the count of each word, collected."""

    def __init__(self, server: FileServer) -> None:
        self.server, self.given = server, 0
        self.graph = JobGraph("counting")
        self.collected = collect()
        urls = [server.url(f"{number}.txt") for number in range(FILES)]
        lines = self.graph.source(files.lines(urls, watch="100ms"), name="lines", parallelism=2)
        words = lines.flat_map(str.split, name="words").key_by(str)
        words.stateful_map(lambda word, count, _: ((count or 0) + 1, (word, (count or 0) + 1))).sink(self.collected)
        self.tasks = self.graph.compile(OPTIONS).plan.tasks

    def give(self) -> None:
        """Lets another file appear at once."""
        name = f"{self.given}.txt"
        hidden = self.server.folder / f".{name}"
        hidden.write_text(f"{' '.join(WORDS)}\n" * LINES)
        hidden.rename(self.server.folder / name)
        self.given += 1


def test_kills_of_tasks_and_an_outage_count_each_word_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "authority")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    folder = tmp_path / "served"
    folder.mkdir()
    server = FileServer(folder, authority.server())
    try:
        counting = CountingJob(server)
        with running(counting.graph, tmp_path, OPTIONS) as job:
            job.wait_for(is_quiescent)
            for task in counting.tasks:
                counting.give()
                before = job.incarnations()
                kill(job, task)
                wait_for_successors(job, before, task)
            server.refusals = [(503, {})] * 3
            while counting.given < FILES:
                counting.give()
            wait_for_checkpoint(job)
            job.wait_for(lambda _: len(counting.collected.rows) >= FILES * LINES * len(WORDS))
            job.driver.stop(drain=True)
            done = job.end()
    finally:
        server.close()
    assert isinstance(done, JobDone)
    assert done.ending is Ending.DRAINED
    assert server.refusals == []
    each = range(1, FILES * LINES + 1)
    assert Counter(counting.collected.rows) == Counter((word, count) for word in WORDS for count in each)
