"""Recorder of whole epochs: what is held back, for how long, and what is written about an epoch that is given up."""

from __future__ import annotations

from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from msgspec.structs import replace

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.checkpoint.snapshot import encode_snapshot
from clonos.core.coordinator.coordinator_effects import Alarm, Effect, Ending, JobDone, JobFailed, ReleaseSlot
from clonos.core.model.errors import Blame
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.wire.control_messages import Completed
from clonos.io.epochs.record_writer import GIVEN_UP
from clonos.io.store.store import CheckpointStore
from clonos_standby.driver.epoch_recorder import EpochRecorder, Recording
from tests.speed import scaled
from tests.unit.host.test_epoch_captures import LOG, TASK, AnsweringSlots
from tests.unit.inflight.samples import snapshot

LIMIT_S = scaled(30.0)


class Recorded:
    """Recorder whose slots answer, and whose store lacks the snapshots of the later checkpoint."""

    def __init__(self, folder: Path, bytes_max: int = 1 << 20) -> None:
        slots = self.slots = AnsweringSlots(folder)
        self.begun: CheckpointMetadata = slots.coordinator.completed
        self.plan = slots.coordinator.plan
        self.root = folder / "recorded"
        self.store = CheckpointStore(str(folder / "store"))
        self.performed: list[Effect] = []
        self._calls = SimpleQueue[tuple[Any, ...]]()
        recording = Recording(self.root, lambda _plan: (TASK,), 20, bytes_max)
        self.recorder = EpochRecorder(
            slots.captures, recording, lambda *call: self._calls.put(call), self.performed.extend
        )
        self.recorder.begin(self.begun)

    def ended(self, number: int, stored: str = "") -> CheckpointMetadata:
        """The metadata of a later checkpoint. ``stored``: the snapshot of each task; "": it is missing."""
        name = stored or f"{number}-2-0.{'0' * 64}"
        tasks = tuple(replace(entry, objects=(name,), log_offset_bytes=len(LOG)) for entry in self.begun.tasks)
        return replace(self.begun, checkpoint=CheckpointId(number), tasks=tasks)

    def knows(self, number: int) -> bool:
        """Whether a slot may learn of a checkpoint."""
        message = Completed(CheckpointId(number), 1, ())
        return self.recorder.hold.passed(message) is message

    def serve(self) -> None:
        """Makes the next call that the recorder's thread has requested."""
        function, *arguments = self._calls.get(timeout=LIMIT_S)
        function(*arguments)

    def drain(self) -> None:
        try:
            while True:
                function, *arguments = self._calls.get_nowait()
                function(*arguments)
        except Empty:
            pass


def test_an_epoch_that_cannot_be_read_is_given_up_with_an_alarm_and_a_note(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.recorder.reach(recorded.begun, recorded.ended(1), recorded.plan)
    assert not recorded.knows(1)
    recorded.serve()
    (alarm,) = recorded.performed
    assert isinstance(alarm, Alarm)
    name = recorded.plan.task_name(TASK)
    assert alarm.text == f"the epoch 0 of {name} was not recorded: its state is not in the store any more"
    recorded.serve()
    assert recorded.knows(1)
    folder = recorded.root / name.replace("/", "-")
    assert "not in the store any more" in (folder / GIVEN_UP).read_text()
    recorded.recorder.close(recorded.drain)


def test_an_epoch_beyond_the_limit_is_given_up_with_both_sizes(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, bytes_max=len(LOG) - 1)
    stored = recorded.store.write_object("1-2-0", [encode_snapshot(snapshot(1, (), TASK))])
    recorded.recorder.reach(recorded.begun, recorded.ended(1, stored), recorded.plan)
    recorded.serve()
    (alarm,) = recorded.performed
    assert isinstance(alarm, Alarm)
    assert "was not recorded: since checkpoint 0 it has 0 MiB of input and log, and 0 MiB is the limit" in alarm.text
    recorded.serve()
    assert recorded.knows(1), "slots keep what was given up"
    (notes,) = recorded.root.glob(f"*/{GIVEN_UP}")
    assert "is the limit" in notes.read_text()
    recorded.recorder.close(recorded.drain)


def test_code_that_ends_the_recorder_holds_nothing_back(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorded.slots.store_error = SystemExit("no token")
    recorded.recorder.reach(recorded.begun, recorded.ended(1), recorded.plan)
    assert not recorded.knows(1)
    recorded.serve()
    assert recorded.performed == [Alarm("no more epochs are recorded: SystemExit: no token")]
    assert recorded.knows(1)
    recorded.recorder.reach(recorded.ended(1), recorded.ended(2), recorded.plan)
    assert recorded.knows(2)
    recorded.recorder.close(recorded.drain)


def test_the_end_of_a_job_that_has_done_its_work_waits_for_its_last_epochs(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recorder, done = recorded.recorder, JobDone(Ending.FINISHED, CheckpointId(1))
    assert not recorder.takes([done])
    recorder.reach(recorded.begun, recorded.ended(1), recorded.plan)
    assert not recorder.takes([JobDone(Ending.ABORTED, CheckpointId(1))])
    assert not recorder.takes([JobFailed(Blame.JOB, "it raised")])
    assert recorder.takes([done])
    later = ReleaseSlot(SlotId(1), "the job has ended")
    assert recorder.takes([later]), "a slot is released that has something of the epoch"
    recorded.serve()
    assert done not in recorded.performed
    recorded.serve()
    assert recorded.performed[-2:] == [done, later]
    recorder.close(recorded.drain)


def test_nothing_is_held_back_after_a_change_of_widths(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    other = replace(recorded.ended(1), tasks=recorded.begun.tasks[:1])
    recorded.recorder.reach(recorded.begun, other, recorded.plan)
    assert recorded.knows(1)
    recorded.recorder.close(recorded.drain)
