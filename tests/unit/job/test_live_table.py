"""Live table of a running job: its columns, its plain lines, and what is printed while it is shown."""

from __future__ import annotations

import io
import logging
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from clonos.core.model.progress import TaskPhase
from clonos.job.live_table import LiveTable
from clonos.status import Phase, RecoveryState, SlotState, Status, TaskState
from clonos_standby.driver.printed_lines import StandardErrorHandler
from tests.harnesses.late_families import late_families


def _task(name: str, records_in: int, **counters: int) -> TaskState:
    return TaskState(name, 1, 7, 4711, "executor-1@host", TaskPhase.LIVE, {"records_in": records_in, **counters}, 1, 1)


def _status(*tasks: TaskState) -> Status:
    recovery = RecoveryState("ask/0", 1, 2, "killed", {"detected": 10_000_000, "replayed": 53_000_000})
    slots = (SlotState(7, 4711, "executor-1@host", "host"),)
    return Status("words", Phase.RUNNING, checkpoint=3, slots=slots, tasks=tasks, recoveries=(recovery,))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Time in seconds, which a test sets."""
    now = [100.0]
    monkeypatch.setattr("clonos.job.live_table.time.monotonic", lambda: now[0])
    monkeypatch.setattr("clonos.job.live_table.monotonic_ns", lambda: round(now[0] * 1e9))
    return now


def test_the_table_has_rates_lag_busy_share_and_the_last_recovery(clock: list[float]) -> None:
    screen = io.StringIO()
    table = LiveTable(Console(file=screen, force_terminal=True, width=150))
    with table:
        table.show(_status(_task("ask/0", 1_000, records_out=0, busy_us=0)))
        clock[0] += 2
        table.show(_status(_task("ask/0", 3_000, records_out=400, busy_us=1_500_000, backlog_elements=12)))
    shown = screen.getvalue()
    for text in ("4711 executor-1@host", "1,000", "200", "12", "75%", "live", "43 ms"):
        assert text in shown, text
    assert "words running: 1,000 records/s, checkpoint 3" in shown


def test_the_rate_of_error_rows_is_not_shown_as_the_output_of_a_step_with_a_sink(clock: list[float]) -> None:
    screen = io.StringIO()
    with LiveTable(Console(file=screen, force_terminal=True, width=150)) as table:
        for records_out in (0, 4_444):
            table.show(_status(_task("ask/0", 1_000, records_out=records_out)), frozenset({"ask"}))
            clock[0] += 1
    assert "4,444" not in screen.getvalue()


def test_a_new_incarnation_does_not_count_as_records(clock: list[float]) -> None:
    screen = io.StringIO()
    table = LiveTable(Console(file=screen, width=150))
    table.show(_status(_task("ask/0", 1_000)))
    clock[0] += 1
    table.show(_status(replace(_task("ask/0", 900_000), incarnation=2)))
    clock[0] += 5
    table.show(_status(replace(_task("ask/0", 900_000), incarnation=2)))
    assert "words running: 0 records/s" in screen.getvalue()


def test_the_first_line_has_the_late_records_of_each_step_that_has_any(clock: list[float]) -> None:
    screen = io.StringIO()
    table = LiveTable(Console(file=screen, width=150))
    clock[0] += 6
    late = (
        replace(_task("ask/0", 1), metrics=late_families(join=1_000)),
        replace(_task("ask/1", 1), metrics=late_families(join=2)),
    )
    table.show(_status(_task("read/0", 9), *late))
    assert screen.getvalue().rstrip().endswith("; late records: join 1,002")


def test_without_a_terminal_a_line_appears_every_few_seconds(clock: list[float]) -> None:
    screen = io.StringIO()
    with LiveTable(Console(file=screen, width=150)) as table:
        for second in range(21):
            clock[0] = 100.0 + second
            table.show(_status(_task("ask/0", second * 10)))
    lines = screen.getvalue().splitlines()
    assert len(lines) == 4
    assert all(line.startswith("words running: 10 records/s, checkpoint 3 (") for line in lines)


def test_a_task_that_reads_its_state_shows_how_much_of_it_and_about_how_long_the_rest_takes(clock: list[float]) -> None:
    screen, lines = io.StringIO(), io.StringIO()
    line_table = LiveTable(Console(file=lines, width=150))
    with LiveTable(Console(file=screen, force_terminal=True, width=150)) as table:
        for permille, second in ((100, 0), (200, 4), (450, 18)):
            clock[0] = 100.0 + second
            status = _status(replace(_task("ask/0", 0, restored_permille=permille), phase=TaskPhase.RECOVERING))
            table.show(status)
            line_table.show(status)
    assert "recovering 45%" in screen.getvalue()
    assert "; not live: ask/0 restores its state: 45% in 18 s, about 22 s left" in lines.getvalue()


def test_logged_and_printed_lines_appear_above_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    before, screen = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", before)
    handler, log = StandardErrorHandler(), logging.getLogger("tests.live")
    monkeypatch.setattr(log, "handlers", [handler])
    monkeypatch.setattr(log, "propagate", False)
    with LiveTable(Console(file=screen, force_terminal=True, width=150)) as table:
        table.show(_status(_task("ask/0", 1)))
        log.warning("a warning")
        print("a line", file=sys.stderr)
    assert before.getvalue() == ""
    assert "a warning\n" in screen.getvalue()
    assert "a line\n" in screen.getvalue()
    log.warning("afterwards")
    assert before.getvalue() == "afterwards\n"
