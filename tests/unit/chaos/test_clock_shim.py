"""The clock shim: the wall clock of a process is set while it runs; monotonic time is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clonos_chaos.real.clock_shim import ClockShim, ClockShimMissing
from clonos_chaos.real.toxiproxy_server import CACHE_VARIABLE

HOUR_MS = 3_600_000
REPORTS = "import sys, time\nfor line in sys.stdin: print(time.time_ns(), time.monotonic_ns(), flush=True)"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: the shim cannot be made")
def test_a_process_sees_the_wall_clock_set_and_set_back_and_its_monotonic_time_untouched(tmp_path: Path) -> None:
    clock = ClockShim(tmp_path)
    command = [sys.executable, "-c", REPORTS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | clock.environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ahead_ms = []
        for forth_ms in (0, HOUR_MS, -HOUR_MS, 0):
            clock.set(forth_ms)
            process.stdin.write(b"\n")
            process.stdin.flush()
            wall_ns, monotonic_ns = map(int, process.stdout.readline().split())
            offset_ns = (wall_ns - monotonic_ns) - (time.time_ns() - time.monotonic_ns())
            ahead_ms.append(round(offset_ns / 1e6 / 60_000) * 60_000)
        process.stdin.close()
    assert ahead_ms == [0, HOUR_MS, -HOUR_MS, 0]


def test_a_missing_compiler_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    with pytest.raises(ClockShimMissing, match=r"put cc, .* on the PATH"):
        ClockShim(tmp_path)
