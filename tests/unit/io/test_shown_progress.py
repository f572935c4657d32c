"""Progress of long work: when it is shown, and what it says."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass

import pytest
from rich.console import Console
from rich.file_proxy import FileProxy

from clonos.io.system.shown_progress import Display, Progress, WorkUnit, shown_progress

SECOND_NS = 1_000_000_000


@dataclass
class Clock:
    """A clock that the test sets, in seconds."""

    now_s: float = 100.0

    def __call__(self) -> int:
        return round(self.now_s * SECOND_NS)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def work(clock: Clock, total: float = 40, unit: WorkUnit = WorkUnit.OBJECTS) -> Progress:
    return Progress("copying", total, unit, clock)


def test_nothing_appears_in_the_first_two_seconds_nor_for_short_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, terminal = Clock(), Terminal()
    for stream in (io.StringIO(), terminal):
        display = Display(work(clock), stream)
        clock.now_s += 1.9
        display.look()
        display.end(is_done=True)
    assert caplog.messages == []
    assert terminal.getvalue() == ""


def test_without_a_terminal_there_is_a_line_every_five_seconds_and_one_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    progress = work(clock)
    display = Display(progress, io.StringIO())
    for _ in range(16):
        clock.now_s += 1
        progress.add(2)
        display.look()
    display.end(is_done=True)
    assert caplog.messages == [
        "copying: 4 of 40 objects, 10% in 2 s, about 18 s left",
        "copying: 14 of 40 objects, 35% in 7 s, about 13 s left",
        "copying: 24 of 40 objects, 60% in 12 s, about 8 s left",
        "copying: done in 16 s",
    ]
    display.end(is_done=False)
    assert len(caplog.messages) == 4, "work that failed is not done"


def test_on_a_terminal_one_line_is_drawn_again_and_is_gone_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock, terminal = Clock(), Terminal()
    progress = work(clock)
    display = Display(progress, terminal)
    for seconds in (2, 1):
        clock.now_s += seconds
        progress.add(10)
        display.look()
    drawn = terminal.getvalue()
    assert "copying: 10 of 40 objects, 25% in 2 s, about 6 s left\r\x1b[2K" in drawn
    assert "copying: 20 of 40 objects, 50% in 3 s, about 3 s left" in drawn
    display.end(is_done=True)
    assert terminal.getvalue().endswith("\x1b[2K")
    assert caplog.messages == []


def test_under_a_live_table_the_lines_go_above_it(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(0)
    display = Display(work(clock), FileProxy(Console(file=Terminal()), Terminal()))
    clock.now_s = 2
    display.look()
    assert caplog.messages == ["copying: 0 of 40 objects, 0% in 2 s"]


@pytest.mark.parametrize(
    ("done", "total", "unit", "after_s", "text"),
    [
        (0, 3_400_000_000, WorkUnit.BYTES, 3, "copying: 0.0 of 3.4 GB, 0% in 3 s"),
        (
            1_200_000_000,
            3_400_000_000,
            WorkUnit.BYTES,
            60,
            "copying: 1.2 of 3.4 GB, 35% in 60 s, about 1 min 50 s left",
        ),
        (999, 999, WorkUnit.BYTES, 3, "copying: 999 of 999 bytes, 100% in 3 s, about 0 s left"),
        (0.1, 1, WorkUnit.SHARE, 3_600, "copying: 10% in 60 min 0 s, about 9 h 0 min left"),
        (50, 40, WorkUnit.OBJECTS, 3, "copying: 40 of 40 objects, 100% in 3 s, about 0 s left"),
        (0, 0, WorkUnit.BYTES, 3, "copying: 0 of 0 bytes, 100% in 3 s, about 0 s left"),
    ],
)
def test_a_line_has_what_is_done_and_about_how_long_the_rest_takes(
    done: float, total: float, unit: WorkUnit, after_s: float, text: str
) -> None:
    clock = Clock()
    progress = work(clock, total, unit)
    progress.add(done)
    clock.now_s += after_s
    assert progress.text() == text


def test_nothing_appears_for_short_work_that_fails(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with suppress(KeyError), shown_progress(Progress("copying", 3, WorkUnit.OBJECTS)) as progress:
        progress.add(1)
        raise KeyError
    captured = capsys.readouterr()
    assert (progress.done, captured.out, captured.err, caplog.messages) == (1, "", "", [])
