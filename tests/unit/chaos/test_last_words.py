"""A run that has passed its limit names what each thread of its processes does, and the end of their log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from clonos_chaos.real.last_words import ENVIRONMENT, LINES, last_words

WAITING = """
import threading
ready = threading.Barrier(3)
def wait_for_nothing(): ready.wait(); threading.Event().wait()
for _ in range(2): threading.Thread(target=wait_for_nothing, daemon=True).start()
ready.wait()
def read_nothing(): print("ready", flush=True); input()
read_nothing()
"""


@contextmanager
def _waiting(log: Path) -> Iterator[psutil.Process]:
    with (
        open(log, "ab") as stderr,
        subprocess.Popen(
            [sys.executable, "-c", WAITING],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | ENVIRONMENT,
        ) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        yield psutil.Process(process.pid)
        process.kill()


def test_each_process_is_ended_and_its_threads_are_named_by_their_functions(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_text("".join(f"line {number}\n\n" for number in range(LINES + 5)), "utf-8")
    with _waiting(log) as one, _waiting(log) as other:
        other.send_signal(signal.SIGSTOP)
        text = last_words(log, {"one": one, "other": other, "third": None})
        assert not one.is_running() or one.status() == psutil.STATUS_ZOMBIE
    end, of_one, of_other = text.partition("\none:")[0], text.split("one:")[1], text.split("other:")[1]
    assert end.splitlines() == ["driver.log ends with:", *(f"line {number}" for number in range(5, LINES + 5))]
    for stacks in (of_one.partition("other:")[0], of_other.partition("third:")[0]):
        assert "  2 x <string>:4 wait_for_nothing\n" in stacks
        assert "  1 x <string>:7 read_nothing < <string>:8 <module>\n" in stacks
    assert text.endswith("third:\n  has ended before")
