"""Functions whose results a replay would not repeat: one warning each, with what to write instead."""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import hashlib
import io
import itertools
import logging
import os
import random as standard
import secrets
import sqlite3
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from email.utils import formatdate
from functools import partial, wraps
from os import urandom
from pathlib import Path
from time import time as now
from types import ModuleType
from typing import Any

import numpy
import pytest
import requests

from clonos import Job, ListState, clock, http, random, service, uuid4, values
from clonos.api.checks.code.code_check import look_at_functions, warn_of_code, warnings_of
from clonos.api.graph import JobGraph
from clonos.job.description import graph_of
from clonos.job.script.job_file import JobFileRaised, load_job
from tests.tidy.source import ROOT
from tests.unit.operators.driver import Given, Outbox


@pytest.fixture(autouse=True)
def _no_function_of_a_job_raises_a_false_alarm() -> None:
    """Replaces the check of all other tests: here the alarms are right."""


def graph(function: Any, method: str = "map") -> JobGraph:
    made = JobGraph("job")
    getattr(made.source(Given([])), method)(function).sink(Outbox())
    return made


def warning(function: Any, method: str = "map") -> str:
    """Returns the warnings about a function, one per line."""
    return "\n".join(text for _, text in warnings_of(graph(function, method)))


SEEN: list[Any] = []
COUNTS: Counter[Any] = Counter()
SESSION = requests.Session()
RNG = standard.Random(5)
OPENED = io.StringIO("a\nb\n")
STARTED = clock.now()
STREAM = Job("other").source(values([1]))
total = 0


DRAW = partial(standard.random)
RUN = str(uuid.uuid4())
NUMBERED: defaultdict[Any, int] = defaultdict(itertools.count().__next__)


@dataclass
class Stamped:
    """A record that gets the time of its making."""

    name: str
    at: float = field(default_factory=time.time)


class Plain:
    """A class without a text of its own."""

    def __init__(self, name: str) -> None:
        self.name = name


def distinct(text: str) -> Any:
    return {word for word in text.split()}  # noqa: C416  a display, not a call


def sets_precision(record: Any) -> Any:
    decimal.getcontext().prec = record
    return record


class Opening:
    """A process class whose thread goes on after open."""

    def open(self, context: Any) -> None:
        self.started = time.time()
        threading.Thread(target=print).start()

    def process(self, value: Any, context: Any) -> None:
        context.emit(value)


class Connected:
    """A process class that asks a database for each record."""

    def open(self, context: Any) -> None:
        self.database = sqlite3.connect("limits.db")

    def process(self, value: Any, context: Any) -> None:
        context.emit(self.database.execute("select 1").fetchone())


class Stats:
    """An object that user code keeps numbers in."""

    count = 0


STATS = Stats()


def assigns_global(record: Any) -> Any:
    global total
    total += 1
    return record


def imports_inside(record: Any) -> Any:
    import uuid as ids
    from os import getenv

    return ids.uuid4(), getenv("HOME")


def remembers_by_default(record: Any, seen: list[Any] = []) -> Any:  # noqa: B006  the mistake itself
    seen.append(record)
    return record


def sets_attribute(record: Any) -> Any:
    STATS.count += 1
    return record


def orders_a_set(record: Any) -> Any:
    for word in set(record.split()):
        return word
    return None


def sets_item(record: Any) -> Any:
    COUNTS[record] += 1
    return record


def builds_a_job(record: Any) -> Any:
    return Job("inner")


class Counting:
    """A callable object that counts its calls in itself."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, record: Any) -> Any:
        self.calls += 1
        return self.calls


def taking() -> Callable[[Any], Any]:
    numbers = iter([1, 2, 3])
    return lambda record: next(numbers)


def enclosing() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    out: list[Any] = []
    number = 0

    def appends(record: Any) -> Any:
        out.append(record)
        return record

    def counts(record: Any) -> Any:
        nonlocal number
        number += 1
        return number

    return appends, counts


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda record: time.time(), "calls time.time (use clock.time() of clonos)"),
        (lambda record: now(), "calls now (use clock.time() of clonos)"),
        (lambda record: time.monotonic_ns(), "calls time.monotonic_ns (use clock.monotonic_ns() of clonos)"),
        (lambda record: datetime.now(), "calls datetime.now (use clock.now() of clonos)"),
        (lambda record: dt.datetime.utcnow(), "calls dt.datetime.utcnow (use clock.now() of clonos)"),
        (lambda record: date.today(), "calls date.today (use clock.now().date() of clonos)"),
        (lambda record: standard.choice(record), "calls standard.choice (use random of clonos)"),
        (lambda record: RNG.random(), "calls RNG.random (use random of clonos)"),
        (lambda record: standard.Random().random(), "calls standard.Random (use random of clonos)"),
        (lambda record: numpy.random.rand(), "calls numpy.random.rand (use random.numpy() of clonos)"),
        (lambda record: numpy.random.default_rng(), "calls numpy.random.default_rng (use random.numpy() of clonos)"),
        (lambda record: uuid.uuid4(), "calls uuid.uuid4 (use uuid4 of clonos)"),
        (lambda record: os.urandom(8), "calls os.urandom (use random of clonos)"),
        (lambda record: urandom(8), "calls urandom (use random of clonos)"),
        (lambda record: secrets.token_hex(), "calls secrets.token_hex (use random of clonos)"),
        (lambda record: requests.get(record), "calls requests.get (use http of clonos, or put @service above"),
        (lambda record: SESSION.get(record), "calls SESSION.get (use http of clonos, or put @service above"),
        (lambda record: open(record), "calls open (read it where the job is built, or in a @service function)"),  # noqa: SIM115
        (lambda record: os.environ["HOME"], "uses os.environ (read it where the job is built"),
        (lambda record: id(record), "calls id (use the value itself: an id differs between processes)"),
        (lambda record: list(set(record)), "gives a set an order (iterate over sorted(...))"),
        (lambda record: SEEN.append(record), "changes the list SEEN (no checkpoint has it: keep it in declared state"),
        (lambda record: [time.time() for _ in record], "time.time (use clock.time() of clonos)"),
        (assigns_global, "changes the global total (no checkpoint has it"),
        (imports_inside, "calls ids.uuid4 (use uuid4 of clonos); calls getenv (read it where the job is built"),
        (remembers_by_default, "changes the default of its parameter seen (no checkpoint has it"),
        (sets_attribute, "sets STATS.count (no checkpoint has it"),
        (orders_a_set, "iterates over a set (iterate over sorted(...))"),
        (sets_item, "changes the Counter COUNTS (no checkpoint has it"),
        (enclosing()[0], "changes the list out (no checkpoint has it"),
        (enclosing()[1], "changes number of the function around it (no checkpoint has it"),
        (lambda record: record - STARTED, "uses STARTED, which clock.now() has set while the file was loaded (all"),
        (lambda record: STREAM.take(1), "uses the Stream STREAM (a step has its records only: use join, lookup"),
        (builds_a_job, "calls Job (a step has its records only: use join, lookup"),
        (lambda record: OPENED.readline(), "uses the open file OPENED (each process has a copy"),
        (taking(), "takes from the iterator numbers (each process has a copy that begins anew: make a list"),
        (Counting(), "changes self.calls (no checkpoint has it"),
        (standard.random, "the step map calls random.random (use random of clonos)"),
        (partial(imports_inside), "calls ids.uuid4 (use uuid4 of clonos)"),
        (lambda record: formatdate(usegmt=True), "calls formatdate (use clock.now() of clonos)"),
        (
            lambda record: datetime.fromtimestamp(record),
            "calls datetime.fromtimestamp (it has the time zone of the machine",
        ),
        (lambda record: numpy.datetime64("now"), "takes the present time (use clock.now() of clonos)"),
        (lambda record: record.sample(frac=0.1), "calls sample() (give random_state=, or choose by a hash of the key)"),
        (lambda record: DRAW(), "calls DRAW (use random of clonos)"),
        (lambda record: RUN, "uses RUN, which uuid.uuid4() has set while the file was loaded"),
        (lambda record: NUMBERED[record], "adds to the defaultdict NUMBERED (no checkpoint has it"),
        (lambda record: decimal.setcontext(record), "calls decimal.setcontext (it is a setting of the process"),
        (
            lambda record: Stamped(record),
            "makes Stamped, whose at is what time.time gives (use clock.time() of clonos)",
        ),
        (lambda record: repr(Plain(record)), "gives the repr of an object, which has its address (give the class a"),
        (lambda record: list(distinct(record)), "a lambda of the step map gives a set an order"),
        (sets_precision, "sets decimal.getcontext().prec (it outlives the call: use decimal.localcontext())"),
    ],
)
def test_a_function_that_a_replay_would_not_repeat_is_warned_of(function: Any, what: str) -> None:
    text = warning(function)
    assert what in text
    assert len(text.splitlines()) == 1
    assert "A replay would not repeat it." in text


def test_the_warning_names_file_line_function_step_and_how_to_silence_it() -> None:
    line = assigns_global.__code__.co_firstlineno
    assert warning(assigns_global) == (
        f"test_code_check.py:{line}: assigns_global of the step map changes the global total (no checkpoint has it:"
        " keep it in declared state, such as ValueState or ListState). A replay would not repeat it."
        " A comment # clonos: ok CLN501 with a reason, in the function, silences this."
    )


def timestamp() -> float:
    return time.time()


def stamped(record: Any) -> Any:
    return record, timestamp()


def logged(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(function)
    def wrapper(record: Any) -> Any:
        return function(record)

    return wrapper


@logged
def decorated(record: Any) -> Any:
    return time.time()


class Enriching:
    """A process function that keeps what it should not, in itself and by a method."""

    seen = ListState[Any]("seen")

    def open(self, context: Any) -> None:
        self.cache: dict[Any, Any] = {}
        self.all: list[Any] = []
        with open(__file__, encoding="utf-8") as file:
            self.cache["text"] = file.read()

    def process(self, value: Any, context: Any) -> None:
        self.cache[value] = 1
        self.remember(value)
        context.state(self.seen).append(value)

    def remember(self, value: Any) -> None:
        self.all.append(uuid.uuid4())

    def on_timer(self, timestamp: Any, context: Any) -> None:
        self.when = standard.random()


def test_helpers_of_the_module_and_decorated_functions_are_looked_at() -> None:
    assert "stamped of the step map calls time.time in timestamp() (use clock.time()" in warning(stamped)
    assert "calls time.time (use clock.time()" in warning(decorated)


def test_the_methods_of_a_process_function_are_looked_at_but_not_its_open() -> None:
    of_process, of_timer = warning(Enriching, "process").splitlines()
    assert (
        "Enriching.process of the step process changes self.cache and changes self.all in remember() (no" in of_process
    )
    assert "; calls uuid.uuid4 in remember() (use uuid4 of clonos). A replay" in of_process
    assert "Enriching.on_timer of the step process changes self.when (no checkpoint has it" in of_timer
    assert "; calls standard.random (use random of clonos)" in of_timer


class Remembering:
    """A process class that keeps a set in an attribute and not in state."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()
        self.client = hashlib.sha256()

    def process(self, value: Any, context: Any) -> None:
        if value not in self.seen:
            self.seen.add(value)
        self.client.update(b"")


def test_a_process_class_may_open_what_it_needs_but_no_thread_and_no_request_for_each_record() -> None:
    assert "Opening.open of the step process calls threading.Thread (use plain calls" in warning(Opening, "process")
    assert len(warning(Opening, "process").splitlines()) == 1
    assert "calls self.database.execute (put @service above" in warning(Connected, "process")


@pytest.mark.parametrize("function", [Remembering, Remembering()])
def test_a_container_that_init_has_made_is_known_by_each_method_that_changes_it(function: Any) -> None:
    text = warning(function, "process")
    assert "Remembering.process of the step process changes " in text
    assert "self.seen (no checkpoint has it" in text
    assert "self.client" not in text


def silenced(record: Any) -> Any:
    # clonos: ok the time goes into a log line only
    return time.time()


def silenced_without_reason(record: Any) -> Any:
    return time.time()  # clonos: ok


def calls_silenced(record: Any) -> Any:
    return silenced(record)


def test_a_comment_with_a_reason_silences_the_warning() -> None:
    assert warning(silenced) == warning(calls_silenced) == ""
    assert warning(lambda record: time.time()) != ""
    assert warning(lambda record: time.time()) == ""  # clonos: ok a lambda in a line of its own
    assert warning(silenced_without_reason).endswith("A comment # clonos: ok CLN101 needs a reason after it.")


class Tagging:
    """A function with sets, and with lists, inside dicts that it has as attributes."""

    def __init__(self) -> None:
        self.sets = {"a": {"x", "y"}, "b": set()}
        self.made = defaultdict[str, set[str]](set)
        self.lists = {"a": ["x", "y"]}

    def literal(self, record: Any) -> Any:
        tags = Counter[str]()
        tags.update(self.sets[record])
        return tags

    def defaulted(self, record: Any) -> Any:
        return Counter(self.made.get(record))

    def extending(self, record: Any) -> Any:
        found: list[str] = []
        found.extend(self.sets.get(record, ()))
        return found

    def listed(self, record: Any) -> Any:
        tags = Counter[str]()
        tags.update(self.lists[record])
        return tags, sorted(self.sets[record]), len(self.made[record])


@pytest.mark.parametrize("method", [Tagging().literal, Tagging().defaulted, Tagging().extending])
def test_a_set_inside_a_dict_gives_its_order_to_what_takes_its_members(method: Any) -> None:
    assert "gives a set an order (iterate over sorted(...))" in warning(method)


class Grouping:
    """A process class whose objects, and so their dicts, are made in the tasks."""

    def __init__(self) -> None:
        self.groups = {"a": {"x"}, "b": {"y", "z"}}
        self.made = {name: set(name) for name in ("a", "b")}
        self.filled = defaultdict(set)  # type: ignore[var-annotated]

    def process(self, value: Any, context: Any) -> None:
        context.emit(dict.fromkeys(self.groups[value]))

    def on_timer(self, timestamp: Any, context: Any) -> None:
        tags = Counter(self.made[context.key])
        tags.update(self.filled[context.key])
        context.emit(tags)


def test_a_set_inside_a_dict_that_init_makes_is_known() -> None:
    of_process, of_timer = warning(Grouping, "process").splitlines()
    assert "Grouping.process of the step process gives a set an order" in of_process
    assert of_timer.count("gives a set an order") == 1


def test_a_list_inside_a_dict_has_an_order() -> None:
    assert "a set" not in warning(Tagging().listed)


@service
def rate(currency: str) -> float:
    return float(requests.get(currency).text)


def right(record: Any) -> Any:
    words: list[str] = []
    words.append(record)
    seen = {word: len(word) for word in sorted(set(record.split()))}
    seen["a"] = 1
    generator = standard.Random(len(record))
    generator.random()
    numpy.random.default_rng(7).random()
    http.get("http://localhost").raise_for_status()
    try:
        rate("EUR")
        gzip.decompress(io.BytesIO(b"").read())
        with gzip.open(io.BytesIO(b"")) as file:
            file.read()
        requests.Request("GET", record).prepare()
        datetime.fromtimestamp(5, tz=dt.UTC)
        datetime.fromtimestamp(5).astimezone()
        record.sample(frac=0.1, random_state=7)
    except requests.RequestException:
        return uuid4(), random.random(), random.numpy(), clock.time(), clock.now()
    return words, seen, uuid.UUID(int=5), uuid.uuid5(uuid.NAMESPACE_DNS, "a"), datetime.fromisoformat(record), len(SEEN)


def test_functions_that_a_replay_repeats_are_not_warned_of() -> None:
    assert warning(right) == ""
    assert warning(str.upper) == warning(len) == warning(rate) == ""
    assert warning(lambda record: requests.get(record), "map_async") == ""
    assert "changes the list SEEN" in warning(lambda record: SEEN.append(record), "map_async")


class Lazy(ModuleType):
    """A module that raises when one of its names is looked up."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


LAZY = Lazy("lazy")


def test_an_object_that_raises_when_it_is_looked_at_does_not_stop_the_job() -> None:
    assert warning(lambda record: LAZY.anything(record)) == ""


def test_a_function_is_warned_of_once_and_on_the_logger_of_the_check(caplog: pytest.LogCaptureFixture) -> None:
    def clocked(record: Any) -> Any:
        return time.time()

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            warn_of_code(look_at_functions(graph(clocked)))
        made = graph(clocked)
        warn_of_code(look_at_functions(made))
    (record,) = [each for each in caplog.records if each.name == "clonos.check"]
    assert "clocked of the step map calls time.time" in record.getMessage()
    assert record.levelno == logging.WARNING


def jobs_of_examples() -> list[Path]:
    """Files with a job at their top level, as ``clonos run`` needs it."""
    return [path for path in sorted((ROOT / "examples").glob("*.py")) if "\njob = Job(" in path.read_text("utf-8")]


@pytest.mark.parametrize("path", jobs_of_examples(), ids=lambda path: path.stem)
def test_no_example_is_warned_of(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(path.parent)
    monkeypatch.chdir(ROOT)
    examples = {each.stem for each in path.parent.glob("*.py")}  # the modules of Clonos that they load stay
    before = {name: sys.modules.pop(name) for name in examples & sys.modules.keys()}
    try:
        job: Job = load_job(str(path))
        module: ModuleType = sys.modules[path.stem]
        assert module.__file__ == str(path)
        assert list(warnings_of(graph_of(job))) == []
    finally:
        for name in examples & sys.modules.keys():
            del sys.modules[name]
        sys.modules.update(before)


def test_a_public_name_that_a_file_does_not_import_is_answered_by_its_import(tmp_path: Path) -> None:
    file = tmp_path / "without_import.py"
    file.write_text("from clonos import Job\n\njob = Job('etl')\ntotal = sum_('price')\n", "utf-8")
    with pytest.raises(
        JobFileRaised, match=r"name 'sum_' is not defined. It is in clonos.agg: from clonos.agg import sum_"
    ):
        load_job(str(file))
