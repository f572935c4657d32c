"""Functions are intercepted in a context with answers, for user code, and are the originals anywhere else."""

from __future__ import annotations

import datetime
import logging
import os
import pickle
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from time import time as imported_by_name
from typing import Any

import numpy as np
import pytest

from clonos.io.interception.answers import Answers, answered_with
from clonos.io.interception.patches import install, names_of_patches, replace_in

Date = datetime.datetime


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    install()
    replace_in(globals())


def asked_by(use: Callable[[], Any]) -> list[str]:
    """Returns the names of the functions for which an answer was wanted, and lets the originals answer."""
    asked: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        def note(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
            asked.append(name)
            return original(*args, **named)

        return note

    answers: Answers = {name: noting(name) for name in names_of_patches()}
    with answered_with(answers):
        use()
    return asked


@pytest.mark.parametrize(
    ("use", "names"),
    [
        (lambda: time.time(), {"time.time"}),
        (lambda: imported_by_name(), {"time.time"}),
        (lambda: time.perf_counter_ns(), {"time.perf_counter_ns"}),
        (lambda: time.strftime("%Y"), {"time.strftime"}),
        (lambda: Date.now(), {"datetime.datetime.now"}),
        (lambda: Date.now(datetime.UTC), {"datetime.datetime.now"}),
        (lambda: Date.today(), {"time.time"}),
        (lambda: datetime.date.today(), {"time.time"}),
        (lambda: random.random(), {"random.random"}),
        (lambda: random.choice("ab"), {"random.choice"}),
        (lambda: random.Random(), {"random.Random"}),
        (lambda: random.SystemRandom().random(), {"os.urandom"}),
        (lambda: uuid.uuid4(), {"os.urandom"}),
        (lambda: uuid.uuid1(), {"uuid.uuid1"}),
        (lambda: os.urandom(4), {"os.urandom"}),
        (lambda: secrets.token_hex(), {"os.urandom"}),
        (lambda: np.random.default_rng(), {"os.urandom"}),
        (lambda: np.random.rand(), {"numpy.random.rand"}),
        (lambda: threading.Thread(target=int).start(), {"threading.Thread.start"}),
    ],
)
def test_a_function_that_user_code_calls_is_answered(use: Callable[[], Any], names: set[str]) -> None:
    assert set(asked_by(use)) == names


def test_an_answer_takes_the_place_of_the_value() -> None:
    with answered_with(
        {"time.time": lambda original: 7.5, "datetime.datetime.now": lambda original, cls, tz=None: cls.max}
    ):
        assert time.time() == 7.5
        assert Date.now() == Date.max
    assert time.time() > 7.5
    assert Date.now() < Date.max


def test_the_originals_answer_in_other_threads() -> None:
    seen: list[float] = []
    thread = threading.Thread(target=lambda: seen.append(time.time()))
    with answered_with({"time.time": lambda original: 7.5}):
        thread.start()
        thread.join()
    assert seen[0] > 7.5


def test_modules_that_measure_or_log_get_the_originals() -> None:
    logger = logging.Logger("intercepted")
    logger.addHandler(logging.NullHandler())
    assert asked_by(lambda: logger.warning("a line with a time")) == []
    assert asked_by(lambda: threading.Event().wait(0.001)) == []


def test_the_code_of_a_module_that_is_imported_gets_the_originals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_in_a_step.py").write_text("import time, random\nAT = time.time()\nDRAWN = random.random()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert asked_by(lambda: __import__("imported_in_a_step")) == []
    monkeypatch.delitem(sys.modules, "imported_in_a_step")


def test_intercepted_functions_are_pickled_by_name_and_datetime_stays_the_same_class() -> None:
    for function in (time.time, random.random, os.urandom, uuid.uuid1):
        assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301  made here
    assert type(Date.now()) is Date
    assert pickle.loads(pickle.dumps(Date)) is Date  # noqa: S301  made here


def test_generators_with_a_seed_are_as_before() -> None:
    assert asked_by(lambda: random.Random(5).random()) == ["random.Random"]
    assert random.Random(5).random() == random.Random(5).random()
    random.seed(3)
    first = random.random()
    random.seed(3)
    assert random.random() == first
