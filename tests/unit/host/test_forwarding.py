"""Log records of a slot are forwarded to the driver's log, with a limit."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable

import pytest

from clonos.core.model.ids import SlotId
from clonos.core.ports.recorder import running
from clonos.core.wire.control_messages import PRINTED, Logged
from clonos.core.wire.message_codec import encode_message
from clonos_services.logger import logger as user_logger
from clonos_standby.slot.log_forwarding import (
    LINES_PER_SECOND_MAX,
    PRINTED_PER_SECOND_MAX,
    TEXT_CHARACTERS_MAX,
    Forwarder,
    PrintForwarder,
    forwarded,
)
from tests.harnesses.fake_recorder import FakeRecorder

SLOT = SlotId(7)


def test_log_records_of_runtime_and_user_code_are_forwarded_with_level_and_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent: list[Logged] = []
    with forwarded(logging.INFO, SLOT, sent.append):
        logging.getLogger("clonos.slot").warning("the store is %s", "slow")
        user_logger.info("banned", word="x")
        logging.getLogger("clonos.slot").debug("not asked for")
        logging.getLogger("somebody.else").warning("careful")
        logging.getLogger("somebody.else").info("not asked for")
    assert sent == [
        Logged(SLOT, logging.WARNING, "clonos.slot", "the store is slow"),
        Logged(SLOT, logging.INFO, "clonos.job", "banned word='x'"),
        Logged(SLOT, logging.WARNING, "somebody.else", "careful"),
    ]
    assert caplog.messages == []


def test_any_text_can_be_sent() -> None:
    sent: list[Logged] = []
    with forwarded(logging.INFO, SLOT, sent.append):
        user_logger.info("no file \udcff")
    assert sent[0].text == "no file \\udcff"
    assert encode_message(sent[0])


def test_forwarding_ends_when_it_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[Logged] = []
    with forwarded(logging.INFO, SLOT, sent.append):
        pass
    logging.getLogger("clonos.slot").warning("here")
    assert (sent, caplog.messages) == ([], ["here"])


def test_a_flood_of_log_records_is_cut_and_the_omitted_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Logged] = []
    seconds = iter([0.0] * (LINES_PER_SECOND_MAX + 50) + [1.0])
    monkeypatch.setattr("clonos_standby.slot.log_forwarding.time.monotonic", lambda: next(seconds))
    forwarder = Forwarder(SLOT, sent.append)
    for number in range(LINES_PER_SECOND_MAX + 51):
        forwarder.emit(logging.LogRecord("clonos.job", logging.WARNING, "", 0, f"line {number}", None, None))
    assert [message.text for message in sent[LINES_PER_SECOND_MAX:]] == [
        "50 more lines were suppressed",
        f"line {LINES_PER_SECOND_MAX + 50}",
    ]


def _in_thread(name: str, work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


def test_printed_lines_are_forwarded_whole_with_the_task_whose_thread_printed_them() -> None:
    sent: list[Logged] = []

    def work() -> None:
        print("one", 2)
        print("begun", end="")
        sys.stdout.flush()
        print(" and ended\nlast", end="")
        print("wrong", file=sys.stderr)
        logging.getLogger("mine").warning("odd")

    with forwarded(logging.WARNING, SLOT, sent.append):
        _in_thread("task ask/0 1.3", work)
        _in_thread("call ask/1 1.3 0", lambda: print("called"))
        print("from the runtime")
    assert sent == [
        Logged(SLOT, logging.INFO, PRINTED, "one 2", "ask/0", "1.3"),
        Logged(SLOT, logging.INFO, PRINTED, "begun and ended", "ask/0", "1.3"),
        Logged(SLOT, logging.WARNING, PRINTED, "wrong", "ask/0", "1.3"),
        Logged(SLOT, logging.WARNING, "mine", "odd", "ask/0", "1.3"),
        Logged(SLOT, logging.INFO, PRINTED, "called", "ask/1", "1.3"),
        Logged(SLOT, logging.INFO, PRINTED, "from the runtime"),
        Logged(SLOT, logging.INFO, PRINTED, "last", "ask/0", "1.3"),
    ]


def test_a_line_of_user_code_has_the_epoch_of_its_step() -> None:
    sent: list[Logged] = []

    def work() -> None:
        recorder = FakeRecorder()
        recorder.begin_epoch()
        with running(recorder):
            user_logger.warning("banned")
            print("seen")
        logging.getLogger("clonos.slot").warning("between steps")

    with forwarded(logging.WARNING, SLOT, sent.append):
        _in_thread("task ask/0 1.3", work)
    assert [(each.text, each.incarnation, each.epoch) for each in sent] == [
        ("banned", "1.3", 1),
        ("seen", "1.3", 1),
        ("between steps", "1.3", None),
    ]


def test_a_progress_bar_is_forwarded_as_it_was_last_and_a_line_without_an_end_in_pieces() -> None:
    sent: list[Logged] = []
    output = PrintForwarder(SLOT, sent.append, logging.INFO)
    for percent in range(1, 101):
        print(f"\r{percent} %", end="", file=output)
    print("\r\ndone\r\n", end="", file=output)
    assert [message.text for message in sent] == ["100 %", "done"]
    sent.clear()
    for _ in range(3):
        print("x" * (TEXT_CHARACTERS_MAX // 2), end="", file=output)
    assert [len(message.text) for message in sent] == [TEXT_CHARACTERS_MAX]


def test_a_flood_of_printed_lines_is_cut_and_the_omitted_ones_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Logged] = []
    seconds = iter([0.0] * (PRINTED_PER_SECOND_MAX + 50) + [1.0])
    monkeypatch.setattr("clonos_standby.slot.log_forwarding.time.monotonic", lambda: next(seconds))
    output = PrintForwarder(SLOT, sent.append, logging.INFO)
    for number in range(PRINTED_PER_SECOND_MAX + 51):
        print(f"line {number}", file=output)
    assert [message.text for message in sent[PRINTED_PER_SECOND_MAX:]] == [
        "50 more printed lines were suppressed",
        f"line {PRINTED_PER_SECOND_MAX + 50}",
    ]
