"""Log lines about peers: a few per kind, then a count; no peer can forge a line."""

from __future__ import annotations

import logging
import time

import pytest

from clonos.core.wire.printable import TEXT_CHARACTERS_MAX, escaped, indented
from clonos.io.net.rate_limited_log import LINES_MAX, WINDOW_S, RateLimitedLog

LOGGER = logging.getLogger("clonos.test")


class Clock:
    """Time of the tests."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made.monotonic)
    return made


def test_a_flood_is_logged_as_ten_lines_and_a_count(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(LOGGER)
    logged = [log.warning("malformed messages", f"message {number}") for number in range(20_000)]
    assert logged == [True] * LINES_MAX + [False] * (20_000 - LINES_MAX)
    log.tick()
    assert caplog.messages == [f"message {number}" for number in range(LINES_MAX)]
    clock.now_s += WINDOW_S
    log.tick()
    log.tick()
    assert caplog.messages[LINES_MAX:] == ["19990 more lines were suppressed: malformed messages"]
    assert log.warning("malformed messages", "another one")


def test_each_kind_of_line_has_its_own_limit(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(LOGGER)
    for number in range(LINES_MAX + 5):
        log.warning("one kind", f"one {number}")
    assert log.warning("another kind", "another")
    log.close()
    assert caplog.messages[-2:] == ["another", "5 more lines were suppressed: one kind"]


def test_the_count_is_logged_before_the_next_line_of_its_kind(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(LOGGER, lines_max=1)
    for number in range(3):
        log.log("kind", logging.ERROR, f"line {number}")
    clock.now_s += WINDOW_S
    log.log("kind", logging.ERROR, "line 3")
    assert caplog.messages == ["line 0", "2 more lines were suppressed: kind", "line 3"]
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_continuation_lines_are_indented(caplog: pytest.LogCaptureFixture) -> None:
    RateLimitedLog(LOGGER).warning("kind", "host\n2026-01-01 CRITICAL forged\r\x1b[2J\x00\u2028 %s")
    assert caplog.messages == ["host\n    2026-01-01 CRITICAL forged\\r\\x1b[2J\\x00\\u2028 %s"]


def test_printable_text_is_unchanged() -> None:
    assert escaped("größer\tals\n日本") == "größer\tals\n日本"
    assert indented("one line") == "one line"
    assert len(indented("x" * 100_000)) == TEXT_CHARACTERS_MAX
