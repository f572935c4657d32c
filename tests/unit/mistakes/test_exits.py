"""Steps that end their process: the error names the step, the record and the line, and the job ends at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harnesses.mistakes import check, run_file

pytestmark = pytest.mark.slow

HEAD = """
import os
import sys
from clonos import Job, stdout, values

def leave(value):
    if value == 3:
        {leaving}
    return value

job = Job("etl")
numbers = job.source(values(range(5)))
numbers.{step}(leave, name="parse").sink(stdout())
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("step", "leaving", "sentence"),
    [
        ("map", "os._exit(0)", "step parse, at the record 3, raised ExitCalled: os._exit(0) was called in a step"),
        ("map", "sys.exit('enough')", "step parse, at the record 3, raised SystemExit: enough"),
        (
            "map_async",
            "os._exit(4)",
            "step parse, at the record 3, raised ExitCalled: os._exit(4) was called in a step",
        ),
        (
            "map_async",
            "sys.exit('enough')",
            "step parse, at the record 3, raised ExitCalled: sys.exit('enough') was called in a",
        ),
    ],
)
def test_a_step_that_ends_its_process_is_named_with_the_record(
    tmp_path: Path, step: str, leaving: str, sentence: str
) -> None:
    printed = run_file(tmp_path, HEAD.format(step=step, leaving=leaving))
    check(printed, f"job etl has failed: {sentence}", code=1)
    assert "recovered" not in printed.errors
    if step == "map":
        check(printed, f"in leave\n    {leaving}")


FORKING = """
import os
from threading import Thread
from clonos.core.model.errors import ExitCalled
from clonos.io.process.exit_guard import guard_thread

def work():
    guard_thread()
    try:
        os._exit(5)
    except ExitCalled as error:
        print(error)
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

thread = Thread(target=work)
thread.start()
thread.join()
os._exit(9)
"""


def test_processes_that_a_step_forks_and_other_threads_may_still_end() -> None:
    done = subprocess.run([sys.executable, "-u", "-c", FORKING], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[0].startswith("os._exit(5) was called in a step")
    assert done.stdout.splitlines()[1:] == ["child 7"]
    assert done.returncode == 9
