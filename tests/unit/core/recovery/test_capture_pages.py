"""Pages of an epoch: which are written to a file by their slot, which are sent, and which were read before."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from clonos.core.log.determinants import step
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import CheckpointId, SlotId, TaskId
from clonos.core.recovery.capture import FILE_PAGE_BYTES, PAGE_BYTES, CaptureRequest, EpochEnd, TaskCapture
from clonos.core.wire.capture_messages import (
    CapturedElements,
    CapturedLog,
    CaptureElements,
    CaptureLog,
    Elements,
    encode_page,
    with_digests,
)
from tests.harnesses.coordinator_harness import formed
from tests.unit.inflight.samples import snapshot

FILE = "/records/.pages/1-0"
SENDER = SlotId(1)
COUNT = 6
"""Elements of each input of the task in its epoch."""


class Read:
    """Capture of the whole epoch of the first task with two inputs, of whose first channel pages may be in a file."""

    def __init__(self) -> None:
        coordinator = formed().coordinator
        plan, view = coordinator.plan, coordinator.view
        assert view is not None
        self.task = next(task for task in plan.tasks if plan.inputs[task] and plan.outputs[task])
        self.channels = [channel.id for channel in plan.inputs[self.task]]
        entry = coordinator.completed.tasks[self.task]
        log = b"".join(step(index, COUNT) for index, _ in enumerate(self.channels))
        end = EpochEnd(entry.log_offset_bytes + len(log), snapshot(1, (), self.task))
        files = {self.channels[0]: FILE}
        self.capture = TaskCapture(plan, view, entry, None, 1, 1 << 20, end, files)
        (asked,) = self.asked()
        assert isinstance(asked, CaptureLog)
        place = asked.task, asked.incarnation, asked.log, asked.from_bytes
        assert self.capture.on_reply(SENDER, CapturedLog(*place, 0, end.log_offset_bytes, b"", 1), log)

    def asked(self) -> list[CaptureRequest]:
        return [request for _, request in self.capture.requests()]

    def asked_first(self) -> CaptureElements:
        """The request for the first channel."""
        return next(e for e in self.asked() if isinstance(e, CaptureElements) and e.channel == self.channels[0])

    def elements(self, first_seq: int, count: int = 2) -> list[Elements]:
        return [Elements(self.channels[0], first_seq, ElementKind.ROWS, count, CheckpointId(0), b"rows")]

    def answer(self, elements: list[Elements], saved_bytes: int = 0, file: str = FILE) -> bool:
        asked = self.asked_first()
        head = asked.channel, asked.task, asked.incarnation, asked.from_seq
        reply = CapturedElements(*head, 0, COUNT, 1, file, asked.offset_bytes, saved_bytes)
        return self.capture.on_reply(SENDER, reply, encode_page(elements))


def test_pages_follow_each_other_in_a_file_until_one_is_sent() -> None:
    read = Read()
    asked = read.asked_first()
    assert (asked.file, asked.offset_bytes, asked.until_seq, asked.bytes_max) == (FILE, 0, COUNT, FILE_PAGE_BYTES)
    assert read.answer(with_digests(read.elements(0)), saved_bytes=100)
    assert (read.asked_first().file, read.asked_first().offset_bytes, read.asked_first().from_seq) == (FILE, 100, 2)
    assert read.answer(read.elements(2)), "its disk is full"
    assert (read.asked_first().file, read.asked_first().bytes_max) == ("", PAGE_BYTES)
    assert read.answer(read.elements(4), file="")
    pages = read.capture.inputs[0]
    assert pages.is_read
    assert (pages.saved_bytes, pages.sent) == (100, [*read.elements(2), *read.elements(4)])
    assert pages.digests() == with_digests([*read.elements(0), *read.elements(2), *read.elements(4)])
    assert pages.size_bytes == 100 + 2 * len(b"rows")


def test_channels_without_a_file_are_sent() -> None:
    read = Read()
    others = [asked for asked in read.asked() if isinstance(asked, CaptureElements)][1:]
    assert [(asked.channel, asked.file) for asked in others] == [(channel, "") for channel in read.channels[1:]]


def test_a_page_that_is_saved_in_another_file_is_malformed() -> None:
    with pytest.raises(MessageMalformed, match="elements in '/etc/passwd', which was not asked for"):
        Read().answer(with_digests(Read().elements(0)), saved_bytes=100, file="/etc/passwd")


def test_outputs_that_were_read_for_their_receivers_are_not_asked_for_again() -> None:
    coordinator = formed().coordinator
    plan, view, task = coordinator.plan, coordinator.view, TaskId(0)
    assert view is not None
    entry, (first, *others) = coordinator.completed.tasks[task], [channel.id for channel in plan.outputs[task]]
    end = EpochEnd(entry.log_offset_bytes, snapshot(1, tuple((each, 4) for each in (first, *others)), task))
    capture = TaskCapture(plan, view, entry, None, 1, 1 << 20, end)
    known = [Elements(first, seq, ElementKind.ROWS, 2, CheckpointId(0), b"8 bytes!") for seq in (0, 2, 4)]
    capture.take_outputs({first: known[:1]})
    asked = [(each.channel, each.from_seq) for _, each in capture.requests() if isinstance(each, CaptureElements)]
    assert asked == [(first, 2), *((each, 0) for each in others)]
    capture.take_outputs({first: known, others[0]: [replace(known[0], channel=others[0])]})
    assert capture.outputs[0].chunks == known[:2]
    assert first not in [each.channel for _, each in capture.requests() if isinstance(each, CaptureElements)]
