"""Files to which a slot writes pages of a capture: it writes what is there, and sends the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId
from clonos.core.wire.capture_messages import (
    CapturedElements,
    Elements,
    decode_page,
    encode_page,
    with_digests,
)
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.io.epochs.page_files import PageFiles, save_page
from clonos.io.epochs.record_reader import EpochRecord
from clonos.io.epochs.record_writer import RecordWriter
from tests.unit.io.test_epoch_records import HEAD_OF_TOTAL

CHANNEL = ChannelId(3)
ELEMENTS = [Elements(CHANNEL, seq, ElementKind.ROWS, 2, CheckpointId(0), b"%d" % seq * 9) for seq in range(0, 40, 2)]


def reply_for(file: str, elements: list[Elements], offset_bytes: int = 0) -> CapturedElements:
    """What the machine of a slot answers, without the page."""
    digests = encode_page(with_digests(elements))
    return CapturedElements(CHANNEL, TaskId(1), Incarnation(1), 0, 0, 40, 1, file, offset_bytes, 0, digests)


def test_pages_in_a_file_are_the_input_of_a_record_and_their_digests_are_sent(tmp_path: Path) -> None:
    pages, saved_bytes = (encode_page(ELEMENTS[:12]), encode_page(ELEMENTS[12:])), 0
    with PageFiles(tmp_path) as files:
        (file,) = files.create([CHANNEL]).values()
        for page, elements in zip(pages, (ELEMENTS[:12], ELEMENTS[12:]), strict=True):
            answer = reply_for(file, elements, saved_bytes)
            save_page(answer, page)  # a request is repeated while its answer is on its way
            reply, sent = save_page(answer, page)
            assert decode_page(sent) == with_digests(elements)
            assert (reply.saved_bytes, reply.digests) == (len(page), b"")
            saved_bytes += reply.saved_bytes
        with RecordWriter(tmp_path / "total-0" / "17") as writer:
            writer.input_page(Path(file), saved_bytes)
            writer.finish(HEAD_OF_TOTAL)
    assert list(EpochRecord(tmp_path / "total-0" / "17").inputs()) == ELEMENTS
    assert [path.name for path in tmp_path.iterdir()] == ["total-0"]


def test_a_page_whose_file_is_on_another_machine_is_sent_and_creates_nothing(tmp_path: Path) -> None:
    reply, page = reply_for(str(tmp_path / "1-3"), ELEMENTS), encode_page(ELEMENTS)
    sent = replace(reply, digests=b""), page
    assert save_page(reply, page) == sent
    (tmp_path / "1-3").symlink_to(tmp_path / "other")
    (tmp_path / "other").touch()
    assert save_page(reply, page) == sent, "it is not a file of a driver"
    assert (tmp_path / "other").read_bytes() == b""


def test_files_are_for_their_user_alone(tmp_path: Path) -> None:
    with PageFiles(tmp_path / "recorded") as files:
        (file,) = map(Path, files.create([CHANNEL]).values())
        assert {path.stat().st_mode & 0o777 for path in (file.parent, file.parent.parent)} == {0o700}
        assert file.stat().st_mode & 0o777 == 0o600
        assert files.create([CHANNEL])[CHANNEL] != str(file), "a later attempt writes over an earlier one"


def test_a_file_that_lacks_what_was_written_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"short")
    with (
        RecordWriter(tmp_path / "total-0" / "17") as writer,
        pytest.raises(OSError, match="page lacks its last 4 bytes"),
    ):
        writer.input_page(tmp_path / "page", 9)


@pytest.mark.parametrize("cut", [1, 3, 9])
def test_a_torn_page_is_refused(cut: int) -> None:
    with pytest.raises(DECODE_ERRORS):
        decode_page(encode_page(ELEMENTS)[:-cut])
