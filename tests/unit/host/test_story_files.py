"""A slot's trace in a file: each record at once, and a disk that is full ends the trace, not the slot."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import stat
from pathlib import Path
from typing import Any, get_args

import pytest

from clonos.core.model.ids import SlotId
from clonos.core.ports import slot_effects
from clonos.core.slot import slot_events
from clonos.core.slot.event_trace import replay
from clonos.core.slot.slot import MACHINE, Slot
from clonos.core.slot.slot_events import HeartbeatDue
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.swarm.world import World
from clonos_standby.slot.effect_executor import EffectExecutor
from clonos_standby.slot.story_files import TraceFile, called_by_signal, traced
from tests.harnesses.lone_slot import RecordingInbox, lone_surroundings, small_image
from tests.harnesses.recording_shell import RecordingShell
from tests.harnesses.slot_dialogue import SlotDialogue


def slot() -> Slot:
    """A slot without a view."""
    dialogue = SlotDialogue()
    dialogue.run("slot 2")
    return dialogue.slot


def test_each_step_is_in_the_file_before_the_next_one(tmp_path: Path) -> None:
    step, close = traced(slot(), str(tmp_path / "new" / "folder"))
    path = tmp_path / "new" / "folder" / "slot-0000000000000002.trace"
    for count in (1, 2, 3):
        step(HeartbeatDue(count * 1_000_000_000))
        assert len(replay(path.read_bytes()).story.lines()) == count
    close()


def test_without_a_folder_the_slot_itself_is_stepped() -> None:
    plain = slot()
    step, close = traced(plain, "")
    assert step == plain.step
    close()


def test_a_folder_that_cannot_be_created_is_reported_and_the_slot_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    plain = slot()
    step, _ = traced(plain, str(tmp_path / "file" / "folder"))
    assert step == plain.step
    assert "the slot writes no trace" in caplog.text


def test_a_full_disk_ends_the_trace_and_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TraceFile(tmp_path / "slot.trace")

    class Full:
        def write(self, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            """There is nothing to close."""

    file._file.close()
    file._file = Full()  # type: ignore[assignment]
    with caplog.at_level(logging.WARNING):
        file.write(b"one")
        file.write(b"two")
    assert caplog.text.count("ends here: No space left on device") == 1


def test_a_record_that_fits_in_part_ends_the_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "slot.trace"
    file = TraceFile(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, limits[1]))  # the write of the second record is cut without an error
    try:
        file.write(b"first")
        file.write(b"second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    file.write(b"third")
    file.close()
    assert path.read_bytes() == b"firstsec"
    assert caplog.text.count("ends here") == 1


def test_only_the_own_user_may_read_a_trace(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        TraceFile(tmp_path / "new" / "slot.trace").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "new" / "slot.trace").stat().st_mode) == 0o600


def test_the_signal_calls_and_is_what_it_was_before_afterwards() -> None:
    before, called = signal.getsignal(signal.SIGUSR1), list[int]()
    with called_by_signal(lambda: called.append(1)):
        signal.raise_signal(signal.SIGUSR1)
    assert called == [1]
    assert signal.getsignal(signal.SIGUSR1) == before


def test_every_event_has_a_handler_and_every_effect_is_performed_everywhere(tmp_path: Path) -> None:
    assert {kind for _, kind in MACHINE.table} == set(get_args(slot_events.Event))
    effects = set(get_args(slot_effects.Effect))
    world = World(1)
    image = small_image()
    folder: Any = type("Folder", (), {"path": tmp_path})
    store: Any = None
    executor = EffectExecutor(SlotId(1), lone_surroundings(image, RecordingInbox()), store, folder, store)
    try:
        for performers in (
            SimSlot(world, SlotId(1), "domain").performers,
            RecordingShell(image.plan).performers,
            executor.performers,
        ):
            assert set(performers) == effects
    finally:
        executor.close()
