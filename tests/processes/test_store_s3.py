"""The checkpoint store on an S3-compatible server: objects, the chain, and a whole job that is killed and resumed."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from clonos.api.graph import JobGraph
from clonos.connectors import collect
from clonos.core import coordination as c
from clonos.io.envelope import ObjectCorrupt
from clonos.io.object_files import ObjectMissing, StoreFailed
from clonos.io.store import CheckpointStore, StoreInUse
from clonos.io.store_chain import AppendOutcome
from tests.processes.gated_source import Gate, GatedNumbers
from tests.processes.running_job import running
from tests.processes.test_slot_processes import OPTIONS, STEP, is_calm, wait_for_checkpoint

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server on loopback with a bucket in it."""
    served = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    served.start()
    host, port = served.get_host_and_port()
    address = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT")).close()
    yield address
    served.stop()


@pytest.fixture
def url(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of its own for each test."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return f"s3://bucket/{tmp_path.name}?endpoint={server}"


def test_objects_are_written_read_listed_and_deleted(url: str) -> None:
    store = CheckpointStore(url)
    store.write_object("task/3/7", b"state" * 1000)
    store.write_object("task/3/8", b"")
    assert CheckpointStore(url).read_object("task/3/7") == b"state" * 1000
    assert store.read_object("task/3/8") == b""
    assert store.files.list("objects") == ["objects/task/3/7", "objects/task/3/8"]
    assert store.files.list("nowhere") == []
    store.delete_objects(["task/3/7", "task/3/7", "task/9/9"])
    with pytest.raises(ObjectMissing, match="objects/task/3/7"):
        store.read_object("task/3/7")


def test_a_damaged_object_is_named(url: str) -> None:
    store = CheckpointStore(url)
    store.write_object("task/1", b"state")
    store.files.write("objects/task/1", store.files.read("objects/task/1")[:-1])
    with pytest.raises(ObjectCorrupt, match="objects/task/1"):
        store.read_object("task/1")


def test_the_chain_says_who_is_coordinator(url: str) -> None:
    earlier, later = CheckpointStore(url), CheckpointStore(url)
    record = earlier.open_job("one")
    assert earlier.append_checkpoint(1, b"1") is AppendOutcome.CREATED
    with pytest.raises(StoreInUse):
        CheckpointStore(url).open_job("one")
    assert later.open_job("one", resume=True) == record
    assert later.checkpoint_metadata() == b"1"
    assert earlier.append_checkpoint(2, b"2") is AppendOutcome.TAKEN
    assert later.append_checkpoint(2, b"2") is AppendOutcome.CREATED


def test_of_many_that_create_one_object_one_succeeds(url: str) -> None:
    won: list[int] = []
    start = threading.Barrier(6)

    def create(number: int) -> None:
        files = CheckpointStore(url).files
        start.wait()
        for round_number in range(5):
            if files.create_if_absent(f"contested/{round_number}", b"%d" % number):
                won.append(round_number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(5))


def test_a_server_that_is_not_there_is_a_failure_of_the_store() -> None:
    with pytest.raises(StoreFailed, match="failed to read"):
        CheckpointStore("s3://bucket/x?endpoint=http://127.0.0.1:1").read_object("task/1")


def test_a_job_keeps_its_state_there_and_goes_on_from_it(url: str, tmp_path: Path) -> None:
    graph, gate, output = JobGraph("remote"), Gate(tmp_path / "gate"), collect()
    graph.source(GatedNumbers(gate)).key_by(lambda n: n % 3).stateful_map(
        lambda _, total, n: ((total or 0) + n, (n, (total or 0) + n))
    ).sink(output)
    with running(graph, tmp_path, OPTIONS, parallelism=1, store=url) as job:
        job.wait_for(is_calm)
        gate.open_to(STEP)
        wait_for_checkpoint(job)
        gate.open_to(2 * STEP)
        for pid in job.provider.pids().values():
            os.kill(pid, signal.SIGKILL)
    with running(graph, tmp_path, OPTIONS, parallelism=1, store=url, resume=True) as job:
        gate.end(2 * STEP)
        assert isinstance(job.end(), c.JobDone)
    assert Counter(n for n, _ in output.rows) == Counter(range(2 * STEP))
    assert max(total for n, total in output.rows if n % 3 == 0) == sum(range(0, 2 * STEP, 3))
