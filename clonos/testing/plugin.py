"""The pytest plugin: fixtures, and options that show a world again or run more of them.

`crash_test` and `harness` are the fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from clonos.testing.crash_test_options import options

if TYPE_CHECKING:
    from clonos.testing import Harness


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of crash tests."""
    group = parser.getgroup("clonos.testing", "crash tests of clonos jobs")
    group.addoption("--clonos-seeds", type=int, metavar="N", help="worlds of each crash test, instead of what it says")
    group.addoption("--clonos-seed", type=int, metavar="S", help="only this world of each crash test")
    group.addoption("--clonos-faults", type=_faults, metavar="N,N", help="with --clonos-seed: only these faults strike")
    group.addoption("--clonos-records", type=int, metavar="N", help="with --clonos-seed: at most so many records")


def pytest_configure(config: pytest.Config) -> None:
    """Tells crash tests of this process."""
    options.seeds = config.getoption("--clonos-seeds")
    options.seed = config.getoption("--clonos-seed")
    options.faults = config.getoption("--clonos-faults")
    options.records = config.getoption("--clonos-records")
    if options.seeds is not None and options.seeds < 1:
        raise pytest.UsageError(f"--clonos-seeds {options.seeds} would run no world: give 1 or more")
    if options.seed is None and (options.faults, options.records) != (None, None):
        raise pytest.UsageError("--clonos-faults and --clonos-records are of one world: name it by --clonos-seed")


def _faults(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(int(number) for number in text.split(","))


@pytest.fixture(name="crash_test")
def _crash_test() -> Callable[..., Any]:
    """``clonos.testing.crash_test``."""
    from clonos.testing import crash_test

    return crash_test


@pytest.fixture(name="harness")
def _harness() -> Iterator[Callable[..., Harness]]:
    """Makes ``clonos.testing.Harness`` objects, and closes them when the test is over."""
    from clonos.testing import Harness

    with ExitStack() as made:
        yield lambda *arguments, **named: made.enter_context(Harness(*arguments, **named))
