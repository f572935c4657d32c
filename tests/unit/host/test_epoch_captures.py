"""Captures of the driver: what is asked of which slot, and what ends them."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest

from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_effects import Effect, JobFailed, ReleaseSlot
from clonos.core.log.determinants import CLOCK, numbers, step
from clonos.core.model.errors import Blame
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.model.options import Options
from clonos.core.recovery.capture import CaptureRequest
from clonos.core.wire.capture_messages import CapturedElements, CapturedLog, CaptureLog, encode_page
from clonos.io.epochs.record_parts import RecordPart
from clonos.io.epochs.record_reader import lacking
from clonos.io.store.store import CheckpointStore
from clonos.operators.job_image import JobImage
from clonos_standby.driver.captures import Captures
from clonos_standby.driver.epoch_writing import CapturedJob, CaptureFailed, has_steps, pickled_batch
from clonos_standby.driver.failed_epoch import FailedEpoch
from tests.harnesses.coordinator_harness import formed
from tests.speed import scaled

LIMIT_S = scaled(30.0)
TASK = TaskId(2)
LOG = numbers(CLOCK, 1) * 500  # takes no input


class AnsweringSlots:
    """Slots that answer at once with a log and with empty channels, or (``is_silent``) not at all."""

    def __init__(
        self, folder: Path, *, is_silent: bool = False, bytes_max: int = 1 << 20, has_code: bool = True
    ) -> None:
        self.coordinator: Coordinator = formed().coordinator
        self.is_silent = is_silent
        self.asked: list[tuple[SlotId, CaptureRequest]] = []
        job = CapturedJob(JobImage(self.coordinator.plan, (), {}, Options()), b"image", "1f", (), has_code=has_code)
        self.folder = folder
        self.store_error: BaseException | None = None
        self.captures = Captures(self.ask, self.answer, self.open_store, job, bytes_max)

    def open_store(self) -> CheckpointStore:
        if self.store_error is not None:
            raise self.store_error
        return CheckpointStore(str(self.folder / "store"))

    def ask(self, question: Callable[[Coordinator], object]) -> object:
        return question(self.coordinator)

    def answer(self, slot: SlotId, asked: CaptureRequest) -> None:
        self.asked.append((slot, asked))
        if self.is_silent:
            return
        if isinstance(asked, CaptureLog):
            head = asked.task, asked.incarnation, asked.log, asked.from_bytes
            self.captures.on_captured(slot, CapturedLog(*head, 0, len(LOG), b"", asked.number), LOG)
        else:
            place = asked.channel, asked.task, asked.incarnation, asked.from_seq
            self.captures.on_captured(slot, CapturedElements(*place, 0, 0, asked.number), encode_page(()))


def test_each_part_is_asked_of_the_slot_that_has_it(tmp_path: Path) -> None:
    slots = AnsweringSlots(tmp_path)
    folder = slots.captures.take(TASK, tmp_path / "epochs", LIMIT_S)
    view, plan = slots.coordinator.view, slots.coordinator.plan
    assert view is not None
    assert folder == tmp_path / "epochs" / plan.task_name(TASK).replace("/", "-") / "0"
    assert {slot for slot, asked in slots.asked if isinstance(asked, CaptureLog)} == {view.placements[TASK].slot}
    assert all(slot == view.placements[asked.task].slot for slot, asked in slots.asked)


def test_a_record_lacks_records_if_the_task_has_processed_none(tmp_path: Path) -> None:
    slots = AnsweringSlots(tmp_path)
    folder = slots.captures.take(TASK, tmp_path / "epochs", LIMIT_S)
    name = slots.coordinator.plan.task_name(TASK)
    assert lacking(folder) == (f"records: {name} has processed none since the job began",)
    assert has_steps(LOG + step(0, 3))


@pytest.mark.parametrize(
    "batch", [["a", "b", "a", 1, 1.5, None, b"x", True], [{"n": 1}, ("a", [2])], [], ("a",)], ids=repr
)
def test_a_batch_of_a_source_is_the_same_after_its_record(batch: object) -> None:
    assert pickle.loads(pickled_batch(batch)) == batch  # noqa: S301  its own


def test_a_larger_epoch_than_the_limit_is_refused_with_both_sizes(tmp_path: Path) -> None:
    with pytest.raises(CaptureFailed, match="has 0 MiB of input and log, and 0 MiB is the limit"):
        AnsweringSlots(tmp_path, bytes_max=10).captures.take(TASK, tmp_path / "epochs", LIMIT_S)
    assert not (tmp_path / "epochs").exists()


def test_slots_that_do_not_answer_are_named_as_the_reason(tmp_path: Path) -> None:
    with pytest.raises(CaptureFailed, match=r"in 0\.1 s its slots did not answer"):
        AnsweringSlots(tmp_path, is_silent=True).captures.take(TASK, tmp_path / "epochs", 0.1)


def failure(slots: AnsweringSlots) -> JobFailed:
    """The end of the job by the code of the task."""
    name = slots.coordinator.plan.task_name(TASK)
    return JobFailed(Blame.JOB, "step total raised KeyError: 'eur'", task_name=name, error="KeyError: 'eur'")


@pytest.mark.parametrize("is_silent", [False, True], ids=["slots answer", "slots are silent"])
def test_the_end_of_a_job_waits_for_the_epoch_of_the_failed_task_for_a_limited_time(
    tmp_path: Path, is_silent: bool
) -> None:
    slots = AnsweringSlots(tmp_path, is_silent=is_silent)
    ended: list[Effect] = []
    has_ended = threading.Event()

    def end(effects: list[Effect]) -> None:
        ended.extend(effects)
        has_ended.set()

    epoch = FailedEpoch(slots.captures, tmp_path / "epochs", end, time_s=0.1 if is_silent else LIMIT_S)
    release, failed = ReleaseSlot(SlotId(1), "it has failed"), failure(slots)
    assert epoch.takes([release, failed], slots.coordinator.plan)
    assert has_ended.wait(LIMIT_S)
    epoch.close()
    first, last = ended
    assert first == release
    assert isinstance(last, JobFailed)
    assert last.reason == failed.reason
    assert last.epoch.startswith("Note: the epoch of" if is_silent else "The epoch of")


def test_an_epoch_that_cannot_be_written_changes_nothing_of_the_error_of_the_job(tmp_path: Path) -> None:
    slots, root = AnsweringSlots(tmp_path), tmp_path / "epochs"
    root.touch()
    ended = SimpleQueue[list[Effect]]()
    epoch, failed = FailedEpoch(slots.captures, root, ended.put, time_s=LIMIT_S), failure(slots)
    assert epoch.takes([failed], slots.coordinator.plan)
    (last,) = ended.get(timeout=LIMIT_S)
    epoch.close()
    assert isinstance(last, JobFailed)
    assert (last.reason, last.error) == (failed.reason, failed.error)
    assert last.epoch.startswith("Note: the epoch of ")
    assert "cannot be written: " in last.epoch


def test_the_command_for_a_record_without_code_asks_for_the_file(tmp_path: Path) -> None:
    slots = AnsweringSlots(tmp_path, has_code=False)
    ended = SimpleQueue[list[Effect]]()
    epoch = FailedEpoch(slots.captures, tmp_path / "epochs", ended.put, time_s=LIMIT_S)
    assert epoch.takes([failure(slots)], slots.coordinator.plan)
    (last,) = ended.get(timeout=LIMIT_S)
    epoch.close()
    assert isinstance(last, JobFailed)
    (folder,) = (tmp_path / "epochs").glob("*/0")
    assert last.epoch.endswith(f"\n  clonos replay {folder} --code FILE")
    assert (folder / RecordPart.JOB).read_bytes() == b""


def test_the_release_of_a_slot_after_the_failure_waits_for_the_epoch_too(tmp_path: Path) -> None:
    slots = AnsweringSlots(tmp_path, is_silent=True)
    ended = SimpleQueue[list[Effect]]()
    epoch = FailedEpoch(slots.captures, tmp_path / "epochs", ended.put, time_s=LIMIT_S)
    later = ReleaseSlot(SlotId(2), "it has sent a message since")
    assert epoch.takes([failure(slots)], slots.coordinator.plan)
    assert epoch.takes([later], slots.coordinator.plan)
    slots.is_silent = False
    first, last = ended.get(timeout=LIMIT_S)
    epoch.close()
    assert isinstance(first, JobFailed)
    assert last == later
    assert not epoch.takes([later], slots.coordinator.plan)


def test_another_end_of_a_job_does_not_wait(tmp_path: Path) -> None:
    slots = AnsweringSlots(tmp_path)
    plan = slots.coordinator.plan
    environment = JobFailed(Blame.ENVIRONMENT, "no slot has registered")
    assert not FailedEpoch(slots.captures, tmp_path, lambda _: None).takes([environment], plan)
    assert not FailedEpoch(slots.captures, None, lambda _: None).takes([failure(slots)], plan)
