"""Cost of a step: the time that its thread computed or waited, without the time it had no processor."""

import os
import threading
from pathlib import Path

import pytest

from clonos.io.system.wall_clock import CostClock


def test_the_cost_clock_advances_while_the_thread_waits_and_keeps_no_file_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    clock = CostClock()
    first = clock.now_ns()
    threading.Event().wait(0.02)
    assert clock.now_ns() - first >= 15_000_000
    clock.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert clock.now_ns() > first


@pytest.mark.parametrize("content", [None, "", "1", "no numbers here"])
def test_without_scheduler_statistics_the_cost_clock_is_plain_time(content: str | None, tmp_path: Path) -> None:
    schedule = tmp_path / "schedstat"
    if content is not None:
        schedule.write_text(content, "utf-8")
    clock = CostClock(str(schedule))
    first = clock.now_ns()
    assert 0 <= clock.now_ns() - first < 10_000_000_000


def test_the_cost_clock_excludes_time_without_a_processor(tmp_path: Path) -> None:
    schedule = tmp_path / "schedstat"
    schedule.write_text("5 0 1", "utf-8")
    clock = CostClock(str(schedule))
    first = clock.now_ns()
    hour_ns = 3_600 * 10**9
    schedule.write_text(f"5 {hour_ns} 1", "utf-8")
    assert clock.now_ns() < first
    clock.close()
