"""Spare driver: its use, its replacement, its end, and what it has imported. Some of the processes are played."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from clonos.io.process.fork_server_process import ForkServerProcess
from clonos.server.supervision import driver_main
from clonos.server.supervision.driver_main import ANOTHER_DRIVER
from clonos.server.supervision.job_folder import DriverEnd, JobFolder
from clonos.server.supervision.spare_driver import REPLACED_AFTER_S, SpareDriver
from clonos.server.supervision.waiting_driver import DRIVER_MODULES, Handover, SpareSlots, TakenJob
from tests.unit.values.samples import printed_by

SEED = "12345"


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    """The folder of a job."""
    folder = JobFolder(tmp_path / "words-1")
    folder.create()
    return folder


@pytest.fixture
def spare() -> Iterator[SpareDriver]:
    """A spare driver whose processes copy their input to their output, and end with it."""
    spare = SpareDriver(SEED, ("cat",))
    yield spare
    spare.close()


def _start(spare: SpareDriver) -> int:
    """Lets time pass until there is a spare process; returns its number."""
    spare.tick(0.0, is_wanted=True)
    spare.tick(REPLACED_AFTER_S, is_wanted=True)
    assert spare.process is not None
    return spare.process.pid


def _pid(spare: SpareDriver) -> int | None:
    return None if spare.process is None else spare.process.pid


def test_a_lost_driver_is_followed_by_the_spare_one_which_is_replaced_later(
    spare: SpareDriver, folder: JobFolder
) -> None:
    waiting = _start(spare)
    driver = spare.spawn(folder, 2)
    assert (driver.identity.pid, driver.identity.attempt) == (waiting, 2)
    spare.tick(10.0, is_wanted=True)
    spare.tick(9.9 + REPLACED_AFTER_S, is_wanted=True)
    assert _pid(spare) is None, "its imports would delay the driver that has just begun"
    spare.tick(10.0 + REPLACED_AFTER_S, is_wanted=True)
    assert _pid(spare) not in (None, waiting)
    assert driver.pidfd is not None
    while not driver.has_ended():  # its input has ended
        pass
    driver.close()


@pytest.mark.parametrize("has_died", [False, True], ids=["there is none", "it has died"])
def test_a_driver_starts_without_a_spare_one_and_gets_its_job(
    spare: SpareDriver, folder: JobFolder, has_died: bool
) -> None:
    if has_died:
        _start(spare)
        assert spare.process is not None
        spare.process.kill()
        spare.process.wait()
    driver = spare.spawn(folder, 7)
    while not driver.has_ended():
        pass
    seed, handover = folder.output.read_bytes().splitlines()
    assert seed.decode() == SEED
    assert msgspec.json.decode(handover, type=Handover) == Handover(str(folder.path), 7)
    driver.close()


def test_a_server_without_jobs_has_no_spare_driver(spare: SpareDriver) -> None:
    _start(spare)
    process = spare.process
    assert process is not None
    spare.tick(5.0, is_wanted=False)
    assert spare.process is None
    assert process.returncode is not None


def test_the_hash_seed_of_a_server_stays_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    SpareDriver.of(tmp_path)
    seed = (tmp_path / "hash_seed").read_text("ascii")
    assert int(seed) > 0
    SpareDriver.of(tmp_path)
    assert (tmp_path / "hash_seed").read_text("ascii") == seed
    assert (tmp_path / "hash_seed").stat().st_mode & 0o077 == 0


def test_a_spare_driver_leaves_a_folder_alone_that_another_driver_has_locked(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_end(DriverEnd(1, "drained"))
    lock = folder.lock()
    assert lock is not None
    slots = SpareSlots(SEED, ForkServerProcess.start(SEED, ("os",)))
    monkeypatch.setattr(driver_main, "waited_for_a_job", lambda: TakenJob(folder, 2, slots))
    assert driver_main.main(0.0) == ANOTHER_DRIVER
    assert folder.read_end() == DriverEnd(1, "drained")
    assert folder.read_driver() is None
    os.close(lock)
    slots.fork_server.discard()


def test_a_spare_driver_and_its_fork_server_end_with_the_server() -> None:
    program = (
        "import os, select; from clonos.server.supervision import waiting_driver as waiting;"
        "read, write = os.pipe(); os.write(write, b'12345\\n'); os.close(write); os.dup2(read, 0);"
        "started = []; start = waiting.ForkServerProcess.start;"
        "waiting.ForkServerProcess.start = lambda *given: started.append(start('1', ('os',))) or started[0];"
        "print(waiting.waited_for_a_job(), started[0].process.returncode)"
    )
    assert printed_by(program) == "None -9"


@pytest.mark.slow
def test_a_spare_driver_has_imported_every_library_module_that_a_job_needs(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("to be\n", "ascii")
    (tmp_path / "job.py").write_text(
        "from clonos import Job, files\n"
        "job = Job('words', slots='process')\n"
        f"words = job.source(files.lines({str(tmp_path / 'in')!r})).flat_map(str.split).key_by(lambda word: word)\n"
        "words.count().sink(files.jsonl('out'))\n",
        "utf-8",
    )
    program = (
        "import importlib, sys; from clonos.server.supervision import driver_main;"
        f"[importlib.import_module(name) for name in {DRIVER_MODULES!r}]; known = set(sys.modules);"
        "from clonos.job.script.job_file import load_job; from clonos.job.description import graph_of;"
        "from clonos.core.model.options import Options;"
        f"graph_of(load_job({str(tmp_path / 'job.py')!r})).compile(Options(), parallelism=2);"
        "print(sorted(name for name in set(sys.modules) - known if name.startswith('clonos')))"
    )
    assert printed_by(program) == "[]"
