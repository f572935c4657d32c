"""Rules for every test: it belongs to a stage with a budget, and it leaves no thread, process or socket after.

Options for the tests of simulated worlds are here too: how many worlds, and from which seed on.
"""

import atexit
import functools
import gc
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.holdings import RUN_VARIABLE, Holdings, left_behind, orphans_of_this_run
from tests.properties import is_property, run_in_portions
from tests.run_limit import RunLimit, Unbegun
from tests.speed import SLOWNESS, scaled
from tests.stages import RUNS, SHARES, STAGES, Progress, group_of, stage_of
from tests.worlds.search import Search

# The result of a test does not depend on the speed of the machine.
hypothesis.settings.register_profile("house", deadline=None)
# Like the worlds, the examples are the same in each run of CI: a merge is not refused for a fault that others brought.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=8)  # of `make check`
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "house")

ROOT = Path(__file__).parent.parent
GARBAGE_SEARCHED_EVERY = 20_000
"""Objects that are made between two searches for garbage: Python's 700 take a fortieth of the time of all tests."""
PROGRESS = pytest.StashKey[Progress]()
CONTROLS_S = pytest.StashKey[float]()
LIMIT = pytest.StashKey[RunLimit]()
UNBEGUN = pytest.StashKey[Unbegun]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that Makefile passes."""
    group = parser.getgroup("clonos")
    group.addoption("--worlds", type=int, default=100, metavar="N", help="run N simulated worlds per test of worlds")
    group.addoption("--first-seed", type=lambda text: int(text, 0), default=1, metavar="SEED", help="seed of the first")
    group.addoption(
        "--rewrite-traces", action="store_true", help="write golden dialogues anew, to be reviewed as prose"
    )
    group.addoption(
        "--minutes",
        type=float,
        metavar="M",
        help="give M minutes of each worker to exhaustive tests, whatever their numbers",
    )
    group.addoption(
        "--example-seconds",
        type=float,
        metavar="S",
        help="give S seconds to each property test after its first examples",
    )
    group.addoption(
        "--run-share",
        type=float,
        default=1.0,
        metavar="S",
        help="begin no slow test after this share of the minutes that .ci/run gives to all its runs",
    )
    group.addoption("--fuzz-inputs", type=int, default=20_000, metavar="N", help="feed N inputs to all targets of fuzz")
    group.addoption("--fuzz-requests", type=int, default=200, metavar="N", help="send N made-up requests to a server")


def pytest_configure(config: pytest.Config) -> None:
    """Name this run to all that it starts."""
    os.environ[RUN_VARIABLE] = str(os.getpid())
    config.stash[PROGRESS] = Progress()
    config.pluginmanager.register(config.stash[PROGRESS])
    config.stash[CONTROLS_S] = 0.0
    config.stash[UNBEGUN] = Unbegun()
    config.pluginmanager.register(config.stash[UNBEGUN])
    limit = config.stash[LIMIT] = RunLimit.of(os.environ, config.getoption("--run-share"))
    if config.option.minutes is not None:
        config.option.minutes = limit.exhaustive_minutes(time.time(), config.option.minutes)


def pytest_report_header() -> str:
    """Name the calibration, which all time limits follow."""
    return f"speed: this machine takes {SLOWNESS:g} times as long as the one for which the time limits are written"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Leave what is collected out of each later search for garbage: it stays, and to look at it takes half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE_SEARCHED_EVERY)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the stages in their order, each test with the time limit of its stage, scaled to the machine."""
    if changing := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"workers need the same names of tests: give ids= without addresses to {changing[0]}")
    items.sort(key=lambda item: STAGES.index(stage_of(item)))
    for item in items:
        own = item.get_closest_marker("timeout")
        limit_s = own.args[0] if own else stage_of(item).timeout_s
        item.add_marker(pytest.mark.timeout(scaled(limit_s)), append=False)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives the groups of tests to the workers, in their order.

    It forgets what is done: xdist counts at each message of a worker what that worker has left.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {nodeid: number for number, nodeid in enumerate(self.collection)}

    def _assign_work_unit(self, node: Any) -> None:
        group, tests = self.workqueue.popitem(last=False)
        self.assigned_work[node][group] = tests
        node.send_runtest_some([self._numbers[nodeid] for nodeid in tests])

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Takes a test out of the work of a worker, and gives it more when it is almost done."""
        nodeid = self.collection[item_index]
        group, work = group_of(nodeid), self.assigned_work[node]
        del work[group][nodeid]
        if not work[group]:
            del work[group]
        self._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Use it for each run with workers."""
    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test on Spark without Java, no control after the minutes of all controls, and none after the run's."""
    stage, minutes = stage_of(item), item.config.getoption("--minutes")
    item.user_properties.append(("stage", stage.name))
    is_slow = stage in RUNS[1] or stage.name == "controls" or item.get_closest_marker("slow") is not None
    if refusal := item.config.stash[LIMIT].refusal(time.time(), is_slow):
        item.user_properties.append(("unbegun", refusal))
        pytest.skip(refusal)
    if stage.name == "controls":
        item.user_properties.append(("controls", (0, 1)))
        if minutes is not None and item.config.stash[CONTROLS_S] > 60 * minutes * SHARES["controls"]:
            pytest.skip(f"the controls have had their share of {minutes:g} minutes")
        item.user_properties[-1] = ("controls", (1, 1))
    if stage.name == "spark" and (missing := _what_java_misses()):
        pytest.fail(missing, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Add up what the controls take."""
    began_s = time.monotonic()
    try:
        return (yield)
    finally:
        if stage_of(item).name == "controls":
            item.config.stash[CONTROLS_S] += time.monotonic() - began_s


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a property test for its seconds, where these are limited."""
    seconds = pyfuncitem.config.getoption("--example-seconds")
    if seconds is None or not is_property(pyfuncitem):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in signature(pyfuncitem.obj).parameters}
    counts = run_in_portions(pyfuncitem, lambda: pyfuncitem.obj(**arguments), seconds)
    pyfuncitem.user_properties.append(("examples", counts))
    return True


def pytest_unconfigure() -> None:
    """Lets the summary be the last output: DuckDB's binding lists its types at exit where an object is left over."""
    if "duckdb" in sys.modules:
        atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what each stage took, how far what has minutes came, and what the run had no time for."""
    for line in config.stash[PROGRESS].lines() + config.stash[UNBEGUN].lines():
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True, scope="session")
def _no_orphan_outlives_the_run() -> Iterator[None]:
    yield
    assert not (orphans := orphans_of_this_run(sessions_count=True)), "\n".join(orphans)


@pytest.fixture(autouse=True)
def _a_test_leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    before = Holdings.now()
    yield
    node: pytest.Item = request.node
    stage = stage_of(node).name
    pools_sockets = stage == "spark" or node.get_closest_marker("keeps_sockets") is not None
    complaints = left_behind(before, sockets_count=not pools_sockets, unnamed_threads_count=stage != "spark")
    if stage in ("processes", "spark"):
        complaints += orphans_of_this_run()
    if complaints:
        pytest.fail("the test left something behind:\n" + "\n".join(complaints), pytrace=False)


class _Alarms(logging.Handler):
    """Keeps the warnings about functions of jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps one warning."""
        self.texts.append(record.getMessage())


@pytest.fixture(autouse=True)
def _no_function_of_a_job_raises_a_false_alarm() -> Iterator[None]:
    """Functions that a test wants to be nondeterministic say so by a comment, as those of users do."""
    logger, alarms = logging.getLogger("clonos.check"), _Alarms()
    logger.addHandler(alarms)
    yield
    logger.removeHandler(alarms)
    if alarms.texts:
        pytest.fail("a function of a job was warned of:\n" + "\n".join(alarms.texts), pytrace=False)


@pytest.fixture
def compare_trace(request: pytest.FixtureRequest) -> Callable[[Path, Callable[[str], str]], None]:
    """Plays a golden dialogue and compares it with its file, or writes the file anew."""

    def compare(trace: Path, play: Callable[[str], str]) -> None:
        written = trace.read_text("utf-8")
        played = play(written)
        if request.config.getoption("--rewrite-traces"):
            trace.write_text(played, "utf-8")
        else:
            assert played == written

    return compare


@pytest.fixture
def search(request: pytest.FixtureRequest) -> Search:
    """How many worlds to run, from which seed on: `--worlds` of them, or as many as the minutes allow."""
    first = request.config.getoption("--first-seed")
    seeds = range(first, first + request.config.getoption("--worlds"))
    return Search(seeds, request.config.getoption("--minutes"), request.node.user_properties)


@functools.cache
def _what_java_misses() -> str:
    check = subprocess.run([ROOT / ".ci" / "check-java"], capture_output=True, text=True, check=False)
    return check.stderr if check.returncode else ""
