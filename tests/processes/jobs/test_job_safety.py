"""What other users of the machine, and authors of a job's records, cannot do to a job on slot processes."""

from __future__ import annotations

import os
import resource
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import collect, files, values
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.io.store.store import CheckpointStore
from clonos.job import Job
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(40.0)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A common folder for temporary files besides ``tmp_path``: its path is short, since sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield Path(folder)


def test_a_job_whose_local_folder_belongs_to_another_user_runs_elsewhere_and_deletes_nothing(
    temporary: Path, tmp_path: Path
) -> None:
    (temporary / "precious").write_text("years of work", "utf-8")
    squatted = temporary / f"clonos-{os.getuid()}"
    squatted.mkdir()
    os.chmod(squatted, 0o777)
    (squatted / "...lock").touch()
    job, output = Job("squatted", slots="process", store=tmp_path / "store"), collect()
    job.source(values(range(5))).sink(output)
    job.run()
    assert sorted(output.rows) == list(range(5))
    assert (temporary / "precious").exists()
    assert [path.name for path in squatted.iterdir()] == ["...lock"]
    instead = [path for path in temporary.glob("clonos-*") if path != squatted]
    assert len(instead) == 1, "driver and slots share one root"
    assert list(instead[0].iterdir()) == []


def _with_seed(number: int) -> dict[str, object]:
    # clonos: ok the test compares the seeds of processes
    return {"n": number, "seed": os.environ["PYTHONHASHSEED"], "hash": hash("clonos")}


class Hashing:
    """A job that says in each row what its process hashes text with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.gate = Gate(folder / "gate")

    def job(self) -> Job:
        job = Job("hashing", slots="process", parallelism=2, checkpoint_every="100ms", store=self.folder / "store")
        job.source(GatedNumbers(self.gate)).map(_with_seed).sink(files.jsonl(self.folder / "output"))
        return job

    def wait_until_committed(self, count: int) -> None:
        """Waits for ``count`` records of output."""
        waiting = threading.Event()
        for _ in range(int(LIMIT_S * 50)):
            if (self.folder / "output").exists() and len(self.rows()) >= count:
                return
            waiting.wait(0.02)
        raise AssertionError(f"{len(self.rows())} of {count} records are committed")

    def rows(self) -> list[dict[str, Any]]:
        """The whole output."""
        return list(files.read_committed(self.folder / "output"))

    def reported(self) -> set[tuple[str, int]]:
        """All pairs of seed and hash in the output."""
        return {(row["seed"], row["hash"]) for row in self.rows()}


def test_each_job_draws_its_own_hash_seed_and_a_resume_keeps_it(tmp_path: Path) -> None:
    one, other = Hashing(tmp_path / "one"), Hashing(tmp_path / "other")
    one.gate.open_to(20)
    with one.job().start() as handle:
        one.wait_until_committed(40)
        handle.stop(drain=True)
        assert handle.wait(LIMIT_S).ending is Ending.DRAINED
    for hashing in (one, other):
        hashing.gate.end(50)
    one.job().run(resume=True)
    other.job().run()
    assert len(one.rows()) == 100
    ((seed, hashed),) = one.reported()
    ((other_seed, other_hashed),) = other.reported()
    assert seed == CheckpointStore(str(one.folder / "store")).find_job().hash_seed
    assert seed not in (other_seed, "0")
    assert hashed != other_hashed


def _open_files_max(number: int) -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.fixture
def few_files() -> Iterator[None]:
    """A soft limit such as systems give by default; slots inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_driver_and_slots_may_open_as_many_files_as_the_hard_limit_allows(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    job, output = Job("files", slots="process", store=tmp_path / "store"), collect()
    job.source(values(range(1))).map(_open_files_max).sink(output)
    job.run()
    assert output.rows == [most]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
