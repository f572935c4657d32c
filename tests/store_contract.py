"""Contract of every remote checkpoint store, as tests: a module for a store derives a class from this one.

``url`` is a fixture of that module: a store of its own for each test. What needs a server's help stands there too.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest

from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.io.store.envelope import ObjectCorrupt
from clonos.io.store.metadata_chain import AppendOutcome
from clonos.io.store.object_files import ObjectMissing
from clonos.io.store.store import CheckpointStore, StoreInUse
from tests.processes.harness.drawing_job import OPTIONS, STEP, is_quiescent, wait_for_checkpoint
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.processes.harness.running_job import running

WRITERS = 6
ROUNDS = 5


class StoreContract:
    """Objects, the chain, and a whole job that is killed and resumed."""

    def test_objects_are_written_read_listed_and_deleted(self, url: str) -> None:
        store = CheckpointStore(url)
        store.write_object("task/3/7", [b"state" * 1000])
        store.write_object("task/3/8", [b""])
        assert b"".join(CheckpointStore(url).read_object("task/3/7")) == b"state" * 1000
        assert b"".join(store.read_object("task/3/8")) == b""
        assert store.files.list("objects") == ["objects/task/3/7", "objects/task/3/8"]
        assert store.files.list("nowhere") == []
        assert (store.files.exists("objects/task/3/7"), store.files.exists("objects/task/9")) == (True, False)
        store.write_object("task/3/8", [b"replaced"])
        assert b"".join(store.read_object("task/3/8")) == b"replaced"
        store.delete_objects(["task/3/7", "task/3/7", "task/9/9"])
        with pytest.raises(ObjectMissing, match="objects/task/3/7"):
            b"".join(store.read_object("task/3/7"))

    def test_a_large_object_is_read_back_whole(self, url: str) -> None:
        content = os.urandom(9 << 20)
        CheckpointStore(url).write_object("task/1", [content])
        assert b"".join(CheckpointStore(url).read_object("task/1")) == content

    def test_a_damaged_object_is_named(self, url: str) -> None:
        store = CheckpointStore(url)
        store.write_object("task/1", [b"state"])
        store.files.write("objects/task/1", store.files.read("objects/task/1")[:-1])
        with pytest.raises(ObjectCorrupt, match="objects/task/1"):
            b"".join(store.read_object("task/1"))

    def test_the_chain_decides_which_coordinator_is_current(self, url: str) -> None:
        earlier, later = CheckpointStore(url), CheckpointStore(url)
        record = earlier.open_job("one")
        assert earlier.append_checkpoint(1, b"1") is AppendOutcome.CREATED
        with pytest.raises(StoreInUse):
            CheckpointStore(url).open_job("one")
        assert later.open_job("one", resume=True) == record
        assert later.checkpoint_metadata() == b"1"
        assert earlier.append_checkpoint(2, b"2") is AppendOutcome.TAKEN
        assert later.append_checkpoint(2, b"2") is AppendOutcome.CREATED

    def test_old_entries_of_the_chain_are_removed_and_an_overwrite_discards_all(self, url: str) -> None:
        store = CheckpointStore(url)
        store.open_job("one")
        for checkpoint in (1, 2, 3):
            store.append_checkpoint(checkpoint, b"metadata")
        store.chain.remove_old(keep=2)
        assert len(store.files.list("chain")) == 2
        store.write_object("task/1", [b"state"])
        CheckpointStore(url).open_job("one", overwrite=True)
        assert store.files.list("objects") == []
        assert store.append_checkpoint(4, b"4") is AppendOutcome.TAKEN

    def test_when_many_writers_create_one_object_one_succeeds_and_its_content_stays(self, url: str) -> None:
        won: dict[int, list[int]] = {number: [] for number in range(ROUNDS)}
        start = threading.Barrier(WRITERS, timeout=60)

        def create(writer: int) -> None:
            files = CheckpointStore(url).files
            for number in range(ROUNDS):
                start.wait()
                if files.create_if_absent(f"contested/{number}", b"%d" % writer):
                    won[number].append(writer)

        threads = [threading.Thread(target=create, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        files = CheckpointStore(url).files
        assert {number: [int(files.read(f"contested/{number}"))] for number in range(ROUNDS)} == won
        assert files.list("contested") == [f"contested/{number}" for number in range(ROUNDS)]

    def test_a_job_stores_its_state_and_resumes_from_it(self, url: str, tmp_path: Path) -> None:
        graph, gate, output = JobGraph("remote"), Gate(tmp_path / "gate"), collect()
        graph.source(GatedNumbers(gate)).key_by(lambda n: n % 3).stateful_map(
            lambda _, total, n: ((total or 0) + n, (n, (total or 0) + n))
        ).sink(output)
        with running(graph, tmp_path, OPTIONS, parallelism=1, store=url) as job:
            job.wait_for(is_quiescent)
            gate.open_to(STEP)
            wait_for_checkpoint(job)
            gate.open_to(2 * STEP)
            for pid in job.provider.pids().values():
                os.kill(pid, signal.SIGKILL)
        with running(graph, tmp_path, OPTIONS, parallelism=1, store=url, resume=True) as job:
            gate.end(2 * STEP)
            assert isinstance(job.end(), JobDone)
        assert Counter(n for n, _ in output.rows) == Counter(range(2 * STEP))
        assert max(total for n, total in output.rows if n % 3 == 0) == sum(range(0, 2 * STEP, 3))
