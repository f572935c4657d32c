"""File of the slots that outlive their driver: which of them live, and their end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from clonos.core.model.ids import SlotId
from clonos.core.wire.control_messages import Register
from clonos.io.process.processes import ProcessSlots
from clonos.io.process.retained_slots import RetainedRecord, RetainedSlots
from clonos.io.process.slot_provider import SlotEnded
from clonos.io.system.process_identity import started_at


def registered(slot: int, pid: int, domain: str) -> Register:
    """How a slot registers."""
    return Register(SlotId(slot), domain, "here", "ipc:///data", "ipc:///control", b"key", "token", pid, ())


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for a slot; it ends with its input."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as started:
        yield started


def _retained(folder: Path, pid: int) -> RetainedSlots:
    retained = RetainedSlots(folder / "slots.json")
    retained.begin("version 1", ())
    retained.add(registered(7, pid, "process-3"))
    return RetainedSlots(folder / "slots.json")


def test_the_next_driver_finds_a_slot_that_lives_and_where_the_last_one_listened(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    retained = _retained(tmp_path, process.pid)
    assert [each.register for each in retained.living()] == [registered(7, process.pid, "process-3")]
    assert RetainedSlots(tmp_path / "slots.json").record.driver_folder == retained.record.driver_folder
    assert (tmp_path / "slots.json").stat().st_mode & 0o077 == 0
    retained.remove(SlotId(7))
    assert RetainedSlots(tmp_path / "slots.json").record.slots == ()


def test_a_later_process_with_the_number_of_a_slot_is_no_slot_and_is_left_alone(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    retained = _retained(tmp_path, process.pid)
    slot = msgspec.structs.replace(retained.record.slots[0], started_at="1")
    retained.record = msgspec.structs.replace(retained.record, slots=(slot,))
    assert retained.living() == ()
    retained.end_all()
    assert process.poll() is None


def test_slots_of_an_earlier_boot_are_forgotten(tmp_path: Path) -> None:
    record = RetainedRecord(
        "another boot", "driver-000000000000", "version 1", _retained(tmp_path, os.getpid()).record.slots
    )
    (tmp_path / "slots.json").write_bytes(msgspec.json.encode(record))
    assert RetainedSlots(tmp_path / "slots.json").record.slots == ()


def test_slots_without_another_driver_are_ended(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    retained = _retained(tmp_path, process.pid)
    retained.end_if_any()
    assert started_at(process.pid) == ""
    assert RetainedSlots(tmp_path / "slots.json").record.slots == ()


def test_a_provider_reports_the_end_of_a_slot_that_it_has_taken_over_and_ends_it_when_it_is_closed(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    ended: list[SlotEnded] = []
    provider = ProcessSlots(ended.append, "1", warm_modules=("os",))
    retained = _retained(tmp_path, process.pid)
    number = provider.adopt(retained.record.slots[0])
    assert number is not None
    assert number > 3, "a later slot must not get the name of its domain"
    provider.close()
    assert process.wait() == -9
    assert [each.order for each in ended] == [number]
    assert provider.adopt(retained.record.slots[0]) is None
