"""Answers of a slot to a capture: a page that is on the disk is sent when it has come, without another request."""

from __future__ import annotations

from clonos.core.model.ids import COORDINATOR, ChannelId, TaskId
from clonos.core.model.options import SpillPolicy
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.wire.capture_messages import CapturedElements, CaptureElements, Elements, decode_page, with_digests
from tests.harnesses.fake_disk import options_of
from tests.harnesses.slot_harness import LIFE, SlotHarness

TASK = TaskId(0)
ASKED = CaptureElements(ChannelId(0), TASK, LIFE, 0, 1 << 20, False, 1)


def answers(slot: SlotHarness) -> list[tuple[CapturedElements, list[Elements]]]:
    """The pages that were sent, with their elements."""
    return [(m, decode_page(page)) for _, m, page in slot.shell.sent if isinstance(m, CapturedElements)]


def spilled() -> SlotHarness:
    """A slot whose elements of a channel are on the disk."""
    slot = SlotHarness(options_of(SpillPolicy.EAGER, 20_000))
    slot.begin()
    for _ in range(5):
        slot.emit((0, b"old"))
    slot.disk.do_all()
    return slot


def test_a_page_that_waits_for_the_disk_is_sent_once_it_has_come() -> None:
    slot = spilled()
    slot.post(MessageReceived(COORDINATOR, ASKED))
    assert answers(slot) == []
    slot.disk.do_all()
    ((_, elements), *_) = answers(slot)
    assert (elements[0].first_seq, elements[0].payload) == (0, b"old")
    count = len(answers(slot))
    slot.disk.do_all()
    assert len(answers(slot)) == count


def test_a_page_for_a_file_has_its_digests_beside_it() -> None:
    slot = spilled()
    place = ASKED.channel, ASKED.task, LIFE, 0, 1 << 20, False, 1
    slot.post(MessageReceived(COORDINATOR, CaptureElements(*place, until_seq=1, file="/f", offset_bytes=9)))
    slot.disk.do_all()
    ((reply, elements),) = answers(slot)
    assert (reply.file, reply.offset_bytes, reply.saved_bytes) == ("/f", 9, 0)
    assert decode_page(reply.digests) == with_digests(elements)
    assert [each.first_seq for each in elements] == [0], "the page ends where it may"
