"""The pytest plugin: the fixtures `crash_test` and `harness`, and options that repeat a world or run more of them.

Jobs of tests are registered in a folder of their own, so ``clonos jobs`` does not list them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from clonos.testing.crash_test_options import options

if TYPE_CHECKING:
    from clonos.testing import Harness

RUNS_VARIABLE: Final = "CLONOS_RUNS"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of crash tests."""
    group = parser.getgroup("clonos.testing", "crash tests of clonos jobs")
    group.addoption("--clonos-seeds", type=int, metavar="N", help="number of worlds per crash test, instead of its own")
    group.addoption("--clonos-seed", type=int, metavar="S", help="run only the world of this seed in each crash test")
    group.addoption("--clonos-faults", type=_faults, metavar="N,N", help="with --clonos-seed: inject only these faults")
    group.addoption("--clonos-records", type=int, metavar="N", help="with --clonos-seed: use at most N records")


def pytest_configure(config: pytest.Config) -> None:
    """Stores the options for the crash tests of this process, and makes the folder of its runs.

    Raises: UsageError: the options contradict each other.
    """
    options.seeds = config.getoption("--clonos-seeds")
    options.seed = config.getoption("--clonos-seed")
    options.faults = config.getoption("--clonos-faults")
    options.records = config.getoption("--clonos-records")
    if options.seeds is not None and options.seeds < 1:
        raise pytest.UsageError(f"--clonos-seeds {options.seeds} runs no world: give 1 or more")
    if options.seed is None and (options.faults, options.records) != (None, None):
        raise pytest.UsageError("--clonos-faults and --clonos-records apply to one world: name it with --clonos-seed")
    if not hasattr(config, "workerinput"):  # a worker of pytest-xdist has the folder of its controller
        folder = os.environ[RUNS_VARIABLE] = tempfile.mkdtemp(prefix="clonos-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def _faults(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(int(number) for number in text.split(","))


@pytest.fixture(name="crash_test")
def _crash_test() -> Callable[..., Any]:
    """Returns ``clonos.testing.crash_test``."""
    from clonos.testing import crash_test

    return crash_test


@pytest.fixture(name="harness")
def _harness() -> Iterator[Callable[..., Harness]]:
    """Creates ``clonos.testing.Harness`` objects, which are closed after the test."""
    from clonos.testing import Harness

    with ExitStack() as made:
        yield lambda *arguments, **named: made.enter_context(Harness(*arguments, **named))
