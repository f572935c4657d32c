"""Twenty kinds of code that does not repeat itself: each divergence names its line, and most of them the cause."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pytest

from clonos import ListState, clock, service
from clonos.core.model.code_location import user_frames_of
from clonos.core.model.errors import ReplayDiverged
from clonos.testing import Harness

WORDS: Final = tuple(f"word {number}" for number in range(30))
PRICES: Final = {word: 10.0 ** (number % 17) / 3 for number, word in enumerate(WORDS)}
FOLDER: Final = "CLONOS_TEST_FOLDER"
MOOD: Final = "CLONOS_TEST_MOOD"

SEEN: list[int] = []
KNOWN: dict[int, str] = {}
TOTALS = SimpleNamespace(calls=0)
TURNS = iter(range(1_000))
COUNT = 0


@service
def ask(question: object) -> str:
    return f"answer to {question}"


@service
def report(question: object) -> str:
    return f"report of {question}"


def clocked(number: int) -> str:
    return ask(time.time_ns())  # clonos: ok CLN101 planted


def drawn(number: int) -> str:
    return ask(random.random())  # clonos: ok CLN201 planted


def identified(number: int) -> str:
    return ask(str(uuid.uuid4()))  # clonos: ok CLN203 planted


def ordered(number: int) -> str:
    return ask(",".join({word + "!" for word in WORDS}))  # clonos: ok CLN601 planted


def addressed(number: int) -> str:
    return ask([id(word) for word in WORDS])  # clonos: ok CLN602 planted


def counted(number: int) -> str:
    global COUNT  # clonos: ok CLN501 planted
    COUNT += 1
    return ask(COUNT)


def enclosing() -> Callable[[int], str]:
    total = 0

    def summed(number: int) -> str:
        nonlocal total  # clonos: ok CLN502 planted
        total += number
        return ask(total)

    return summed


@lru_cache
def cached(number: int) -> str:
    return ask(number)


def with_cache(number: int) -> str:
    return cached(number % 2)


def by_environment(number: int) -> str:
    return ask(os.environ.get(MOOD))  # clonos: ok CLN302 planted


def by_file(number: int) -> str:
    return ask(Path("mood.txt").read_text("utf-8"))  # clonos: ok CLN301 planted


def raced(number: int) -> str:
    order: list[str] = []
    threads = [threading.Thread(target=order.append, args=(name,)) for name in "ab"]  # clonos: ok CLN701 planted
    for thread in threads[:: 1 if sys.getswitchinterval() < 1 else -1]:  # stands for the scheduler
        thread.start()
        thread.join()
    return ask("".join(order))


def totalled(number: int) -> str:
    TOTALS.calls += 1  # clonos: ok CLN503 planted
    return ask(TOTALS.calls)


def listed(number: int) -> str:
    return ask(",".join(dict.fromkeys({word + "?" for word in WORDS})))  # clonos: ok CLN601 planted


def hashed(number: int) -> str:
    return ask(hash(f"number {number}"))  # clonos: ok CLN602 planted


def added(number: int) -> str:
    sums = [sum(PRICES[word] for word in {*WORDS[first:]}) for first in range(20)]  # sums of floats depend on the order
    return ask(tuple(sums))


def swapped(number: int) -> str:
    is_first = next(TURNS) > 1  # clonos: ok CLN505 planted
    return ask(1) + report(1) if is_first else report(1) + ask(1)


def appended(number: int) -> str:
    SEEN.append(number)  # clonos: ok CLN504 planted
    return ask(tuple(SEEN))


def left_out(number: int) -> str:
    SEEN.append(number)  # clonos: ok CLN504 planted
    return ask(number) if len(SEEN) > 2 else "too few"


def asked_once(number: int) -> str:
    if number % 2 not in KNOWN:
        KNOWN[number % 2] = ask(number % 2)  # clonos: ok CLN504 planted
    return KNOWN[number % 2]


class Waiting:
    """Emits what came when a timer fires, whose time depends on an attribute."""

    came = ListState[int]("came")

    def __init__(self) -> None:
        self.delays: list[float] = []

    def process(self, number: int, context: Any) -> None:
        self.delays.append(0.5)  # clonos: ok CLN504 planted
        context.state(self.came).append(number)
        context.set_timer(clock.time() + sum(self.delays))

    def on_timer(self, timestamp: datetime, context: Any) -> None:
        context.emit(ask(sorted(context.state(self.came))))


class Plant(NamedTuple):
    """Function that does not repeat itself. ``line``: what its line has. ``cause``: the likely cause, "" if ``clonos
    check`` does not see it. ``is_elsewhere``: only another process shows it."""

    kind: str
    function: Any
    line: str
    cause: str
    is_elsewhere: bool = False


PLANTS: Final = (
    Plant("clock", clocked, "time.time_ns()", "calls time.time_ns"),
    Plant("random", drawn, "random.random()", "calls random.random"),
    Plant("uuid", identified, "uuid.uuid4()", "calls uuid.uuid4"),
    Plant("order of a set", ordered, '",".join(', "gives a set an order", True),
    Plant("id", addressed, "id(word)", "calls id", True),
    Plant("global counter", counted, "ask(COUNT)", "changes the global COUNT"),
    Plant("closure", enclosing(), "ask(total)", "changes total of the function around it"),
    Plant("cache of a function", with_cache, "ask(number)", "", True),
    Plant("environment", by_environment, "os.environ.get(", "calls os.environ.get"),
    Plant("file", by_file, "read_text(", "read_text (read it"),
    Plant("thread", raced, 'ask("".join(order))', "calls threading.Thread"),
    Plant("module state", totalled, "ask(TOTALS.calls)", "sets TOTALS.calls"),
    Plant("dict in the order of a set", listed, "dict.fromkeys(", "gives a set an order", True),
    Plant("hash", hashed, "ask(hash(", "calls hash", True),
    Plant("floats in the order of a set", added, "ask(tuple(sums))", "", True),
    Plant("order of calls", swapped, "report(1) + ask(1)", "takes from the iterator TURNS"),
    Plant("other argument", appended, "ask(tuple(SEEN))", "changes the list SEEN"),
    Plant("call left out", left_out, "SEEN.append(", "changes the list SEEN"),
    Plant("call added", asked_once, "= ask(", "changes the dict KNOWN"),
    Plant("timer", Waiting, "self.delays.append(", "changes self.delays"),
)


def divergence(plant: Plant, change: Callable[[], None]) -> ReplayDiverged:
    """Returns how the successor of a process diverges: three records before its snapshot, and three after it."""
    is_process = isinstance(plant.function, type)
    with Harness(plant.function, key=(lambda number: 0) if is_process else None, step_records=1) as harness:
        for part in ([1, 2, 3], [4, 5, 6]):
            harness.push(part)
            if is_process:
                harness.advance(4)
            if 1 in part:
                harness.snapshot()
        harness.crash()
        change()
        harness.restore()
        with pytest.raises(ReplayDiverged) as raised:
            harness.replay(elsewhere=plant.is_elsewhere)
    return raised.value


def lines_named(error: ReplayDiverged) -> list[str]:
    """Returns the lines of source that the error names: that of its request, and those of suspects."""
    named = [frame.source for frame in user_frames_of(error)[-1:]]
    source = Path(__file__).read_text("utf-8").splitlines()
    for text in error.cause.split(f"{Path(__file__).name}:")[1:]:
        named.append(source[int(text.split(" ", 1)[0]) - 1])
    return named


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Prepares the environment of the first process; returns what changes it for its successor."""

    def change() -> None:
        (tmp_path / "mood.txt").write_text("bad", "utf-8")
        monkeypatch.setenv(MOOD, "bad")
        monkeypatch.setattr(sys, "getswitchinterval", lambda: 2.0)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mood.txt").write_text("good", "utf-8")
    monkeypatch.setenv(MOOD, "good")
    return change


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.kind)
def test_a_planted_divergence_is_found_with_its_line_and_cause(plant: Plant, changed: Callable[[], None]) -> None:
    error = divergence(plant, changed)
    assert any(plant.line in line for line in lines_named(error)), error
    likeliest = error.cause.partition("\n")[0]
    assert (plant.cause or "clonos check finds no such line") in likeliest


def test_the_cause_of_most_planted_divergences_is_named() -> None:
    assert len({plant.kind for plant in PLANTS}) == 20
    assert sum(plant.cause != "" for plant in PLANTS) >= 18
