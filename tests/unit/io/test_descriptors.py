"""Descriptors above 1,023, and none that is free: neither is taken for the end of a process."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.ids import SlotId
from clonos.core.wire.control_messages import Register
from clonos.io.process.processes import ProcessSlots
from clonos.io.process.retained_slots import RetainedSlot, RetainedSlots, opened
from clonos.io.process.slot_provider import SlotEnded
from clonos.io.system.open_files import raise_files_limit
from clonos.io.system.process_identity import machine, started_at
from clonos.io.system.readiness import wait_readable, wait_writable
from clonos.server.register.job_record import DriverProcess
from clonos.server.supervision.driver_process import RunningDriver
from clonos.server.supervision.job_folder import DriverEnd, JobFolder

ABOVE_SELECT = 1_030


@contextmanager
def no_descriptor_below(number: int) -> Iterator[None]:
    """Context in which every new descriptor is at least ``number``."""
    taken: list[int] = []
    try:
        while not taken or taken[-1] < number - 1:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Context in which no file can be opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a slot; it ends with its input."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as started:
        yield started


def _slot(pid: int) -> RetainedSlot:
    register = Register(SlotId(7), "process-3", "here", "ipc:///data", "ipc:///control", b"key", "token", pid, ())
    return RetainedSlot(register, started_at(pid))


def test_a_descriptor_above_those_of_select_is_waited_for() -> None:
    raise_files_limit()
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD, ABOVE_SELECT)
    try:
        assert not wait_readable(high, 0)
        assert wait_writable(write, 0)
        os.write(write, b"x")
        assert wait_readable(high)
    finally:
        for descriptor in (read, write, high):
            os.close(descriptor)


def test_the_end_of_a_slot_with_a_high_descriptor_is_reported(process: subprocess.Popen[bytes]) -> None:
    raise_files_limit()
    ended: list[SlotEnded] = []
    provider = ProcessSlots(ended.append, "1", warm_modules=("os",))
    with no_descriptor_below(ABOVE_SELECT):
        number = provider.adopt(_slot(process.pid))
    provider.close()
    assert (process.wait(), [each.order for each in ended]) == (-9, [number])


def test_a_slot_with_a_high_descriptor_is_ended_and_waited_for(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    raise_files_limit()
    retained = RetainedSlots(tmp_path / "slots.json")
    retained.begin("version 1", (_slot(process.pid),))
    with no_descriptor_below(ABOVE_SELECT):
        retained.end_all()
    assert started_at(process.pid) == ""


def test_without_a_free_descriptor_a_living_process_has_not_ended(process: subprocess.Popen[bytes]) -> None:
    slot = _slot(process.pid)
    with no_free_descriptor():
        with pytest.raises(EnvironmentFault, match=r"cannot be watched: .* Too many open files"):
            opened(slot)
        with pytest.raises(EnvironmentFault, match=r"start time .* Too many open files"):
            started_at(process.pid)
    assert process.poll() is None


def test_without_a_free_descriptor_slots_and_ends_of_drivers_are_not_forgotten(tmp_path: Path) -> None:
    retained = RetainedSlots(tmp_path / "slots.json")
    retained.begin("version 1", (_slot(os.getpid()),))
    folder = JobFolder(tmp_path)
    folder.write_end(DriverEnd(1, "finished"))
    with no_free_descriptor():
        with pytest.raises(EnvironmentFault, match=r"slots\.json"):
            RetainedSlots(tmp_path / "slots.json")
        with pytest.raises(OSError, match="Too many open files"):
            folder.read_end()
        with pytest.raises(EnvironmentFault, match="boot of this machine"):
            machine()


def test_without_a_free_descriptor_a_driver_that_was_adopted_has_not_ended(process: subprocess.Popen[bytes]) -> None:
    driver = RunningDriver.adopt(DriverProcess(process.pid, started_at(process.pid), machine(), 1))
    assert driver is not None
    with no_free_descriptor(), pytest.raises(EnvironmentFault, match="start time"):
        driver.has_ended()
    driver.close()
