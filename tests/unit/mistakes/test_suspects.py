"""A compiled job carries along what each of its steps may not repeat, for the message of a divergence."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from clonos import Job, collect, values
from clonos.core.model.options import Options
from clonos.job.description import graph_of
from clonos.operators.chain import VertexImage


@pytest.fixture(autouse=True)
def _no_function_of_a_job_raises_a_false_alarm() -> None:
    """Replaces the check of all other tests: here the alarms are right."""


def by_time(row: int) -> int:
    return int(time.time()) + row


def shuffled(row: int) -> float:
    return row + random.random()


def silent(row: float) -> float:
    return helped(row)  # clonos: ok the test reads what is silenced


def helped(row: float) -> float:
    return row + time.monotonic()


def loud(row: float) -> float:
    return helped(row)


def vertex_with(step: str, job: Job) -> VertexImage:
    image = graph_of(job).compile(Options(), parallelism=1)
    return next(each for each in image.vertices if step in {node.step for node in each.nodes})


def whats(vertex: VertexImage, step: str) -> list[tuple[str, bool]]:
    return [(each.what, each.is_silenced) for each in vertex.suspects_of(step)]


def chain_of(*functions: Any) -> Job:
    job = Job("suspects")
    stream = job.source(values([1]), name="numbers")
    for function in functions:
        stream = stream.map(function, name=function.__name__)
    stream.sink(collect())
    return job


def test_the_suspects_of_a_step_come_before_those_of_the_steps_in_front() -> None:
    vertex = vertex_with("shuffled", chain_of(by_time, shuffled, loud))
    assert whats(vertex, "shuffled") == [("calls random.random", False), ("calls time.time", False)]
    assert whats(vertex, "by_time") == [("calls time.time", False)]
    assert whats(vertex, "loud")[0] == ("calls time.monotonic in helped()", False)
    assert len(whats(vertex, "")) == 3


def test_a_silenced_line_is_a_suspect_too_and_so_are_the_functions_that_it_calls() -> None:
    assert whats(vertex_with("silent", chain_of(silent)), "silent") == [("calls time.monotonic in helped()", True)]


def test_the_key_of_a_stream_is_a_suspect_where_it_runs() -> None:
    job = Job("suspects")
    job.source(values([1]), name="numbers").key_by(by_time, name="by-time").count(name="count").sink(collect())
    assert whats(vertex_with("by-time", job), "by-time") == [("calls time.time", False)]
    assert whats(vertex_with("count", job), "count") == []
