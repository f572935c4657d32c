"""What a replay refuses: each way of user code to the clock, to randomness, network, processes and files."""

from __future__ import annotations

import datetime as dates
import gc
import logging
import os
import queue
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from time import time as bound_before
from typing import Any

import pytest

from clonos.core.model.errors import JobError
from clonos.io.interception.answers import intercepted
from clonos.io.interception.patches import install
from clonos.replay.isolation import AccessRefused, FileRead, Isolation, isolated

HERE = "test_isolation.py"


def _with_socket(use: Callable[[socket.socket], None]) -> None:
    with socket.socket() as each:
        use(each)


ASKING: list[tuple[str, str, Callable[[], Any]]] = [
    ("time", "time.time()", lambda: time.time()),
    ("time", "time.time()", lambda: bound_before()),
    ("time", "time.time_ns()", lambda: time.time_ns()),
    ("time", "time.monotonic()", lambda: time.monotonic()),
    ("time", "time.perf_counter()", lambda: time.perf_counter()),
    ("time", "datetime.now()", lambda: dates.datetime.now(dates.UTC)),
    ("time", "date.today()", lambda: dates.date.today()),
    ("time", "uuid.uuid1()", lambda: uuid.uuid1()),
    ("random", "a random number of the module random", lambda: random.random()),
    ("random", "a random number of the module random", lambda: random.choice([1, 2, 3])),
    ("random", "a random number of the module random", lambda: random.shuffle([1, 2, 3])),
    ("random", "random.Random() without a seed", lambda: random.Random()),
    ("random", "os.urandom()", lambda: os.urandom(3)),
    ("random", "os.urandom()", lambda: uuid.uuid4()),
    ("random", "os.urandom()", lambda: secrets.token_hex()),
    ("network", "socket.connect(('127.0.0.1', 9))", lambda: _with_socket(lambda each: each.connect(("127.0.0.1", 9)))),
    ("network", "socket.bind(('127.0.0.1', 0))", lambda: _with_socket(lambda each: each.bind(("127.0.0.1", 0)))),
    ("network", "socket.getaddrinfo('example.org', 80)", lambda: socket.getaddrinfo("example.org", 80)),
    ("processes", "subprocess.Popen('true')", lambda: subprocess.run(["true"])),
    ("processes", "os.system(b'true')", lambda: os.system("true")),
    ("files", "open('written.txt', 'w')", lambda: Path("written.txt").write_text("")),
    ("files", "open('written.txt', 'a')", lambda: Path("written.txt").open("a").close()),
    ("files", "os.remove('written.txt')", lambda: os.remove("written.txt")),
    ("files", "os.mkdir('written')", lambda: os.mkdir("written")),
    ("files", "sqlite3.connect('written.db')", lambda: sqlite3.connect("written.db")),
]


def _names(asking: list[tuple[str, str, Callable[[], Any]]]) -> list[str]:
    return [f"{number} {what}" for number, (_, what, _) in enumerate(asking)]


@pytest.mark.parametrize("is_patched", [False, True], ids=["", "libraries are patched"])
@pytest.mark.parametrize(("kind", "what", "ask"), ASKING, ids=_names(ASKING))
def test_a_question_to_the_world_outside_is_refused_with_the_line_of_user_code(
    kind: str, what: str, ask: Callable[[], Any], is_patched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_patched:
        install()  # as by a job with intercept=True that ran in this process; it stays
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AccessRefused) as refused, isolated(Isolation()):
        ask()
    error = refused.value
    assert (error.kind, error.what) == (kind, what)
    assert error.place == f"{HERE}:{ask.__code__.co_firstlineno} in <lambda>"
    assert f"--allow {kind}" in str(error)
    assert not list(tmp_path.iterdir())


HARMLESS = [each for each in ASKING if each[0] in ("time", "random")]


@pytest.mark.parametrize(("kind", "what", "ask"), HARMLESS, ids=_names(HARMLESS))
def test_an_allowed_kind_is_answered(kind: str, what: str, ask: Callable[[], Any]) -> None:
    isolation = Isolation(frozenset((kind,)))
    with isolated(isolation):
        ask()
    assert not isolation.refused


def test_a_patched_function_of_a_step_that_is_not_intercepted_is_refused() -> None:
    patched = intercepted("time.time", time.time)
    with pytest.raises(AccessRefused) as refused, isolated(Isolation()):
        patched()
    assert refused.value.what == "time.time()"
    assert refused.value.place.startswith(f"{HERE}:")


def test_a_clock_that_is_read_in_a_garbage_collection_is_not_refused() -> None:
    def timed(_phase: str, _info: dict[str, int]) -> None:
        time.perf_counter()

    isolation = Isolation()
    gc.callbacks.append(timed)
    try:
        with isolated(isolation):
            gc.collect()
    finally:
        gc.callbacks.remove(timed)
    assert not isolation.refused


def test_a_written_file_is_allowed_with_files(tmp_path: Path) -> None:
    with isolated(Isolation(frozenset(("files",)))):
        (tmp_path / "written.txt").write_text("it is there")
    assert (tmp_path / "written.txt").read_text() == "it is there"


def test_a_refusal_that_user_code_catches_is_remembered() -> None:
    isolation = Isolation()
    with isolated(isolation):
        try:
            time.time()
        except Exception:  # noqa: BLE001  as user code does
            pass
    assert [each.what for each in isolation.refused] == ["time.time()"]


def test_deterministic_functions_of_these_modules_are_answered() -> None:
    isolation = Isolation()
    with isolated(isolation):
        assert random.Random(3).random() == random.Random(3).random()
        assert uuid.uuid5(uuid.NAMESPACE_DNS, "a") == uuid.uuid5(uuid.NAMESPACE_DNS, "a")
        assert dates.datetime.fromtimestamp(0, dates.UTC).year == 1970
        assert time.gmtime(0).tm_year == 1970
        assert sqlite3.connect(":memory:").execute("select 1").fetchone() == (1,)
    assert not isolation.refused
    assert not isolation.read


def test_a_log_line_of_user_code_may_have_its_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), isolated(Isolation()):
        logging.getLogger("user").info("a line")
    assert "a line" in caplog.text


def test_a_wait_of_user_code_may_measure_its_timeout() -> None:
    waiting: queue.Queue[int] = queue.Queue()
    with pytest.raises(queue.Empty), isolated(Isolation()):
        waiting.get(timeout=0.001)


def test_an_import_in_user_code_may_read_and_write_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_later.py").write_text("VALUE = 5\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "bytecode"))
    isolation = Isolation()
    with isolated(isolation):
        import imported_later  # type: ignore[import-not-found]

    assert imported_later.VALUE == 5
    assert (tmp_path / "bytecode").exists()
    assert not isolation.refused
    assert not isolation.read


def test_a_file_that_user_code_reads_is_listed_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rates.json"
    file.write_text("{}")
    isolation = Isolation()
    with isolated(isolation):
        file.read_text()
    line = test_a_file_that_user_code_reads_is_listed_with_its_line.__code__.co_firstlineno + 5
    assert list(isolation.read) == [
        FileRead(str(file), f"{HERE}:{line} in test_a_file_that_user_code_reads_is_listed_with_its_line")
    ]


def test_the_world_is_there_again_afterwards(tmp_path: Path) -> None:
    before = sys.getprofile()
    with pytest.raises(AccessRefused), isolated(Isolation()):
        time.time()
    assert sys.getprofile() is before
    assert time.time() > 0
    (tmp_path / "written").write_text("yes")


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(JobError, match="--allow clock: give time, random, network, processes or files"):
        Isolation(frozenset(("clock",)))


PATCHED_BEFORE = """
import threading
from clonos.io.interception.patches import install

install()
from clonos.replay.isolation import Isolation, isolated

with isolated(Isolation()):
    thread = threading.Thread(target=print, args=("it ran",))
    thread.start()
    thread.join()
"""


def test_a_patched_function_is_not_taken_for_another_where_the_patches_came_first() -> None:
    done = subprocess.run([sys.executable, "-c", PATCHED_BEFORE], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("it ran\n", "")
