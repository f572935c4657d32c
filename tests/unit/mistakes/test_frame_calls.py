"""Functions that fill a container, and frames in map_batches that are handled as if they were all records."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy
import numpy as np
import pytest
from pyarrow import compute

from clonos.api.checks.code.code_check import warnings_of
from clonos.api.graph import JobGraph
from tests.unit.operators.driver import Given, Outbox
from tests.unit.operators.samples import ColumnsGiven


@pytest.fixture(autouse=True)
def _no_function_of_a_job_raises_a_false_alarm() -> None:
    """Replaces the check of all other tests: here the alarms are right."""


def texts(function: Any, method: str = "map_batches") -> list[str]:
    """Returns the warnings about a function of a step with the name "keep"."""
    made = JobGraph("job")
    source: Any = ColumnsGiven([]) if method == "map_batches" else Given([])
    getattr(made.source(source), method)(function, name="keep").sink(Outbox())
    return [text for _, text in warnings_of(made)]


CONTAINERS: list[tuple[Callable[..., Any], str]] = [
    ([].append, "a list by append"),
    (partial([].insert, 0), "a list by insert"),
    (set[int]().add, "a set by add"),
    (dict[str, int]().update, "a dict by update"),
    (deque[int]().appendleft, "a deque by appendleft"),
    (Counter[int]().update, "a Counter by update"),
    (SimpleQueue[int]().put, "a SimpleQueue by put"),
]


@pytest.mark.parametrize(("function", "what"), CONTAINERS, ids=[what for _, what in CONTAINERS])
def test_a_step_that_fills_a_container_is_warned_of(function: Callable[..., Any], what: str) -> None:
    for method in ("map", "filter", "peek"):
        (text,) = texts(function, method)
        assert text.startswith(
            f"the step keep changes {what}. Each process has a copy of it, and no checkpoint has it:"
        )
        assert "rows = collect()" in text
        assert ("results of the step are what the method returns, such as None" in text) == (method == "map")


def test_methods_that_only_read_a_container_are_not_warned_of() -> None:
    assert texts({"a": 1}.get, "map") == texts([1].index, "map") == texts({1}.__contains__, "filter") == []


def sums(frame: Any) -> Any:
    return frame.assign(total=frame["x"].cumsum())


def helped(frame: Any) -> Any:
    return sums(frame)


FRAMES: list[tuple[Callable[[Any], Any], str, str]] = [
    (sums, "cumsum()", "aggregate(total=sum_"),
    (helped, "cumsum() in sums()", "aggregate(total=sum_"),
    (lambda frame: frame.with_columns(t=frame["x"].cum_sum().over("k")), "cum_sum()", "aggregate(total=sum_"),
    (lambda frame: np.cumsum(frame["x"]), "cumsum()", "aggregate(total=sum_"),
    (lambda batch: compute.cumulative_sum(batch["x"]), "cumulative_sum()", "aggregate(total=sum_"),
    (lambda frame: frame["x"].expanding().mean(), "expanding()", "aggregate(total=sum_"),
    (lambda frame: frame.x.rolling(5).mean(), "rolling()", "window(Sliding("),
    (lambda frame: frame["x"].rolling_mean(5), "rolling_mean()", "window(Sliding("),
    (lambda frame: frame.groupby("k").x.sum(), "groupby()", "aggregate(total=sum_"),
    (lambda frame: frame.group_by("k").len(), "group_by()", "aggregate(total=sum_"),
    (lambda frame: frame["x"].diff(), "diff()", "stateful_map"),
    (lambda frame: numpy.diff(frame["x"]), "diff()", "stateful_map"),
    (lambda frame: frame.x.shift(1), "shift()", "stateful_map"),
    (lambda frame: frame.x.ewm(span=3).mean(), "ewm()", "stateful_map"),
    (lambda frame: frame["x"].ewm_mean(span=3), "ewm_mean()", "stateful_map"),
    (lambda frame: frame.x.rank(), "rank()", "top_k(10"),
    (lambda frame: frame.nlargest(3, "x"), "nlargest()", "top_k(10"),
    (lambda frame: frame.drop_duplicates("k"), "drop_duplicates()", "deduplicate("),
    (lambda frame: frame.unique(subset="k"), "unique()", "deduplicate("),
    (lambda frame: frame.sort_values("x"), "sort_values()", "merge_ordered"),
    (lambda frame: frame.sort("x"), "sort()", "merge_ordered"),
]


@pytest.mark.parametrize(("function", "call", "advice"), FRAMES, ids=[str(number) for number in range(len(FRAMES))])
def test_a_batch_that_is_handled_as_if_it_were_all_records_is_warned_of(
    function: Callable[[Any], Any], call: str, advice: str
) -> None:
    (text,) = texts(function)
    assert f"of the step keep calls {call} (" in text
    assert advice in text
    assert (
        "It sees one batch at a time, and where batches are cut is not fixed. A comment # clonos: ok CLN805 with"
        in text
    )


TABLE: Any = numpy.zeros(3)


def right(frame: Any) -> Any:
    """Handles each row alone."""
    names = ["b", "a"]
    names.sort()
    names.sort(key=len)
    codes = {each: number for number, each in enumerate(frame["k"].unique())}
    groups = [key for key, _ in itertools.groupby(names)]
    parts = frame["x"].list.diff(), frame["x"].list.unique(), frame["x"].str.len_chars(), frame["x"].list.sort()
    along = frame.cumsum(axis=1), frame.rank(axis="columns"), frame.diff(axis=1), numpy.cumsum(frame, axis=1)
    return codes, groups, parts, along, TABLE.rank(), numpy.sum(names), frame["x"] * 2, frame.assign(y=1)


def test_functions_that_handle_each_row_alone_are_not_warned_of() -> None:
    assert texts(right) == []


def silenced(frame: Any) -> Any:
    return frame.groupby("k").x.sum()  # clonos: ok each batch is one file


def test_a_comment_with_a_reason_silences_the_warning_of_a_frame() -> None:
    assert texts(silenced) == []


def test_frames_are_looked_at_in_map_batches_only() -> None:
    assert texts(lambda record: record.groupby("k"), "map") == []
