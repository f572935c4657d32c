"""The pytest plugin in a separate pytest run: fixtures, options, no cost when unused, replays in another process."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clonos.testing import Harness, OutputDiverged
from tests.tidy.source import PACKAGE_FOLDERS, ROOT

pytestmark = [pytest.mark.processes, pytest.mark.timeout(150)]

DOCUMENT = ROOT / "docs" / "testing.md"
TESTS = """
import random as standard
from clonos import Job, clock, collect, values

def hidden():
    job = Job("hidden")
    drawn = job.source(values(range(30))).map(lambda number: (number, standard.random()))
    drawn.rebalance().map(tuple).sink(collect())
    return job

def test_hidden(crash_test):
    crash_test(hidden(), seeds=range(100))

def test_good(crash_test):
    job = Job("good")
    job.source(values(range(5))).map(lambda number: (number, clock.time())).rebalance().map(tuple).sink(collect())
    print(crash_test(job))

def test_step(harness):
    assert harness(str).push([1]) == ["1"]
"""


def run(folder: Path, *arguments: str, tests: str = TESTS) -> str:
    """Output of pytest in a separate folder, with this plugin only."""
    (folder / "test_jobs.py").write_text(tests, "utf-8")
    path = os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())
    variables = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "clonos.testing.plugin",
        "-q",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_failure_prints_a_command_that_shows_its_smallest_world_again(tmp_path: Path) -> None:
    output = run(tmp_path, "-k", "hidden or step")
    assert "1 failed, 1 passed" in output
    reported = re.search(r'pytest "(\S+)" (--clonos-seed \d+ --clonos-faults \S+ --clonos-records \d+)', output)
    assert reported is not None, output
    again = run(tmp_path, reported[1], *reported[2].split())
    complaint = re.search(r"source-map/0 had sent .*", output)
    assert complaint is not None
    assert complaint[0] in again


def test_options_set_the_number_of_worlds(tmp_path: Path) -> None:
    assert "good: 3 worlds" in run(tmp_path, "-k", "good", "-s", "--clonos-seeds", "3")
    assert "name it with --clonos-seed" in run(tmp_path, "--clonos-records", "3")


def test_the_plugin_is_declared_and_loads_nothing_of_the_runtime() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", "utf-8")
    assert setup["options.entry_points"]["pytest11"].split() == ["clonos", "=", "clonos.testing.plugin"]
    program = "import sys, clonos.testing.plugin; print(*sorted(n for n in sys.modules if n.startswith('clonos')))"
    path = os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        "clonos",
        "clonos.testing",
        "clonos.testing.crash_test_options",
        "clonos.testing.plugin",
    ]


def test_a_replay_in_another_process_detects_a_dependence_on_set_order() -> None:
    def distinct(text: str) -> list[str]:
        return list(set(text.split()))  # clonos: ok the harness must detect it

    for function, is_found in (
        (distinct, True),
        (lambda text: sorted(distinct(text)), False),  # clonos: ok sorted
    ):
        with Harness(function) as harness:
            harness.push(["one two three four five six seven eight nine ten"])
            harness.snapshot()
            harness.push(["one two three four five six seven eight nine ten"] * 3)
            harness.crash()
            harness.restore()
            if is_found:
                with pytest.raises(OutputDiverged):
                    harness.replay(elsewhere=True)
            else:
                assert len(harness.replay(elsewhere=True)) == 3


def test_the_examples_of_the_document_pass(tmp_path: Path) -> None:
    examples = dict(
        re.findall(r"^```python (test_\w+\.py)\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
    names = ("orders", "sessions", "late_clicks", "paid_orders", "table")
    assert examples.keys() == {f"test_{name}.py" for name in names}
    for name, text in examples.items():
        (tmp_path / name).write_text(text, "utf-8")
    assert "8 passed" in run(tmp_path, tests="")


def test_runs_of_tests_are_in_a_folder_of_their_own_which_goes_with_them(tmp_path: Path) -> None:
    tests = """
import os

def test_folder():
    print("runs in", os.environ["CLONOS_RUNS"])
"""
    (folder,) = re.findall("runs in (.*)", run(tmp_path, "-s", tests=tests))
    assert folder != os.environ["CLONOS_RUNS"]
    assert not Path(folder).exists()
