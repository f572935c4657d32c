"""Mistakes in the functions of steps, as ``clonos run`` answers them: sentence, exit code, at most 12 lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harnesses.mistakes import check, run_file

pytestmark = [pytest.mark.processes, pytest.mark.slow]

HEAD = """
import random, time
from clonos import Job, stdout, values

class Yielding:
    def process(self, value, context):
        yield value * 2

class Returning:
    def process(self, value, context):
        return value * 2

class Minding:
    def process(self, value, context):
        context.set_timer(5)

    def on_timer(self, instant, context):
        context.emit(instant)

async def fetch(value):
    return value

seen = []

def remember(value):
    seen.append(random.random())
    return value

job = Job("etl")
numbers = job.source(values([1, 2, 3]))
"""


@pytest.mark.parametrize(
    ("step", "code", "sentences"),
    [
        ("process(Returning, name='double')", 1, ("step double, at the record 1,", "process() returned a int, and a")),
        ("process(Minding, name='remind')", 1, ("step remind, at the record 1,", "5 is not a point in time: give an")),
        ("map(fetch)", 1, ("the step map gets fetch, an async function",)),
        ("map(str).flat_map(str.upper)", 1, ("returned a str, whose characters would each be a result",)),
        ("map(remember)", 0, ("changes the list seen", "calls random.random (use random of clonos)", "has finished")),
    ],
    ids=["return", "timer", "async", "letters", "warning"],
)
def test_a_mistake_in_a_function_is_answered_in_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, step: str, code: int, sentences: tuple[str, ...]
) -> None:
    answer = run_file(tmp_path, f"{HEAD}\nnumbers.{step}.sink(stdout())")
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name == "clonos.check")
    check(answer._replace(errors=f"{answer.errors}\n{logged}"), *sentences, code=code)


def test_the_results_that_process_yields_are_in_the_output(tmp_path: Path) -> None:
    answer = run_file(tmp_path, f"{HEAD}\nnumbers.process(Yielding).sink(stdout())")
    assert (answer.code, answer.output) == (0, "2\n4\n6\n")


@pytest.fixture(autouse=True)
def _no_function_of_a_job_raises_a_false_alarm() -> None:
    """Replaces the check of all other tests: here an alarm is right."""
