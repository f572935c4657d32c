"""Messages of slots and unknown peers to a driver: its log lines and its connections."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from clonos.core.coordinator.coordinator_events import SlotGone
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import SlotId, TaskId
from clonos.core.wire.control_messages import ONCE_PER_STEP, PRINTED, Hold, Logged, Register, Warned
from clonos.core.wire.messages import Message
from clonos.io.process.slot_provider import SlotEnded
from clonos_standby.driver.driver import Driver, Progress
from tests.harnesses.idle_driver import idle_driver
from tests.harnesses.lone_slot import small_image

FLOOD = 20_000
SLOT = SlotId(7)


@pytest.fixture
def reported() -> list[Progress]:
    """Reports of the driver to its listener."""
    return []


@pytest.fixture
def driver(tmp_path: Path, reported: list[Progress]) -> Iterator[Driver]:
    with idle_driver(tmp_path, reported.append) as made:
        yield made


def _register(number: int, host: str = "host") -> Register:
    return Register(SlotId(number), "domain", host, "ipc://x", "ipc://x", b"", "no token of ours", 1, ())


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        (lambda number: (number, _register(number)), 10),
        (lambda number: (SLOT, Logged(SLOT, logging.ERROR, "clonos.job", f"line {number}")), 1_000),
        (lambda number: (SLOT, Warned(SLOT, f"warning {number}", (("task", "1"),))), 1_000),
    ],
    ids=["registrations", "lines", "warnings"],
)
def test_a_flood_of_bad_messages_is_logged_as_a_few_lines_and_a_count(
    message: Callable[[int], tuple[SlotId, Message]],
    lines: int,
    driver: Driver,
    reported: list[Progress],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1_000.0)
    for number in range(1, FLOOD + 1):
        sender, output = message(number)
        driver.on_message(SlotId(sender), output, b"")
    assert len(caplog.messages) == lines
    assert len(reported) <= lines
    monkeypatch.undo()
    for log in (driver._log, driver._slots_log):
        log.close()
    assert caplog.messages[lines].startswith(f"{FLOOD - lines} more lines were suppressed: ")


def test_a_host_with_a_line_break_in_its_name_forges_no_line(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    driver.on_message(SLOT, _register(SLOT, "host\nCRITICAL the job has failed"), b"")
    (line,) = caplog.messages
    assert "host\n    CRITICAL" in line


def test_a_slots_log_records_are_cleaned_of_line_breaks_unknown_loggers_and_levels(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("mine")
    for name in ("clonos.slot", "clonos.never.heard.of", "no.logger", "mine"):
        driver.on_message(SLOT, Logged(SLOT, 1 << 40, name, "text\nforged \x1b[31m"), b"")
    assert [record.name for record in caplog.records] == ["clonos.slot", "clonos", "root", "mine"]
    assert {record.levelno for record in caplog.records} == {logging.CRITICAL}
    assert {record.message for record in caplog.records} == {"a spare process: text\n    forged \\x1b[31m"}
    assert "clonos.never.heard.of" not in logging.Logger.manager.loggerDict


def test_a_printed_line_appears_on_standard_error_with_its_task(
    driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    driver.on_message(SLOT, Logged(SLOT, logging.INFO, PRINTED, "seen: 7", "ask/0"), b"")
    driver.on_message(SLOT, Logged(SLOT, logging.INFO, PRINTED, "\x1b[31mforged"), b"")
    captured = capsys.readouterr()
    assert captured.err == "[ask/0] seen: 7\n[a spare process] \\x1b[31mforged\n"
    assert captured.out == ""


def test_a_log_line_of_a_task_names_the_task(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    driver.on_message(SLOT, Logged(SLOT, logging.WARNING, "clonos.job", "banned word='x'", "ask/0"), b"")
    assert caplog.messages == ["ask/0: banned word='x'"]


def test_a_warning_about_a_step_is_logged_once_although_each_of_its_tasks_sends_it(
    driver: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    step = small_image().vertices[0].nodes[0].step
    for task in (f"{step}/0", f"{step}/1"):
        driver.on_message(SLOT, Logged(SLOT, logging.WARNING, f"{ONCE_PER_STEP}{step}", "fires at once", task), b"")
    driver.on_message(SLOT, Logged(SLOT, logging.WARNING, f"{ONCE_PER_STEP}unknown", "fires at once"), b"")
    assert caplog.messages == [f"{step}/0: fires at once"]


def test_a_message_type_that_slots_do_not_send_is_malformed_before_it_reaches_the_coordinator(driver: Driver) -> None:
    with pytest.raises(MessageMalformed, match="may not send Hold to the coordinator"):
        driver.on_message(SLOT, Hold(SLOT), b"")
    assert driver.ask(lambda coordinator: coordinator.phases.get(TaskId(0))) is None


def test_a_slot_whose_process_has_ended_cannot_connect(driver: Driver) -> None:
    driver._order(())
    (order,) = driver._orders.running()
    register = msgspec.structs.replace(_register(SLOT), token=order.token)
    driver.on_message(SLOT, register, b"")
    driver._transport.send(SLOT, Hold(SLOT))
    peer = driver._transport._peers.find(SLOT)
    assert peer is not None
    assert len(peer.connections) == 1
    driver._handle_slot_end(SlotEnded(order.number, "killed"))
    assert not peer.connections
    assert isinstance(driver._events[-1], SlotGone)


def test_unknown_keys_may_connect_only_while_a_slot_is_awaited(driver: Driver) -> None:
    seen: list[bool] = []

    def look() -> None:
        seen.append(driver._transport._authenticator.admits_unknown)

    for _ in range(2):
        driver._order(())
    look()
    first, second = driver._orders.running()
    driver.on_message(SLOT, msgspec.structs.replace(_register(SLOT), token=first.token), b"")
    look()
    driver._handle_slot_end(SlotEnded(second.number, "it has never registered"))
    look()
    driver._order(())
    look()
    assert seen == [True, True, False, True]
