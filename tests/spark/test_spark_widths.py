"""Changes of the number of tasks on Spark: by a resume, by a rollback, and while the job runs."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from clonos.connectors import files
from clonos.demo.kills import executor_pids, is_live
from clonos.job import Handle, Job
from clonos.status import Status
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

LIMIT_S = scaled(60.0)
SPLITS, WORDS = 3, 17


class Numbers(GatedNumbers):
    """Three splits for any number of tasks."""

    def splits(self, parallelism: int) -> list[bytes]:
        return super().splits(SPLITS)


class WordCount:
    """Job that writes each word with its number of occurrences so far."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.gate = folder, Gate(folder / "gate")

    def start(self, context: SparkContext, **options: Any) -> Handle:
        """Starts the job, or resumes it."""
        job = Job(
            "words", store=self.folder / "store", checkpoint_every="200ms", parallelism=2, checkpoints_retained=50
        )
        words = job.source(Numbers(self.gate), name="read").map(word_of, name="word")
        counted = words.key_by(lambda word: word).count(name="count")
        counted.map(list, name="row").sink(files.jsonl(self.folder / "out"), name="out")
        return job.start(spark=context, resume=True, **options)

    def run_to(self, context: SparkContext, records: int, **options: Any) -> int:
        """Runs until the output has the first records of each split, and stops with a last checkpoint. Returns its
        number."""
        self.gate.open_to(records)
        with self.start(context, **options) as handle:
            self.wait_for_output(handle, records)
            assert width_of(handle) == int(options["widths"][0].removeprefix("count="))
            handle.stop()
            return handle.wait(LIMIT_S).checkpoint

    def wait_for_output(self, handle: Handle, records: int) -> None:
        """Waits until the first records of each split are counted in committed output."""
        await_status(handle, lambda _: len(self.rows()) >= records * SPLITS)

    def rows(self) -> list[tuple[str, int]]:
        """Committed rows, sorted."""
        try:
            return sorted((word, number) for word, number in files.read_committed(self.folder / "out"))
        except FileNotFoundError:
            return []

    def check(self, records: int) -> None:
        """Checks the output by another count: each word has each number up to that of its occurrences once."""
        totals = Counter(map(word_of, range(records * SPLITS)))
        expected = [(word, number) for word, total in totals.items() for number in range(1, total + 1)]
        assert self.rows() == sorted(expected)


def word_of(number: int) -> str:
    return f"word-{number * number % WORDS}"


def width_of(handle: Handle) -> int:
    """How many tasks count."""
    return sum(task.name.startswith("count") for task in handle.status().tasks)


def await_status(handle: Handle, condition: Callable[[Status], object]) -> Status:
    waiting = threading.Event()
    for _ in range(int(LIMIT_S * 50)):
        if condition(status := handle.status()):
            return status
        waiting.wait(0.02)
    raise AssertionError(handle.status())


def kill_executor(handle: Handle) -> None:
    """Kills the executor of a task that counts, and waits until all tasks run again."""
    status = handle.status()
    domain = next(task.domain for task in status.tasks if task.name.startswith("count"))
    (executor,) = executor_pids([slot.pid for slot in status.slots if slot.domain == domain])
    known = len(status.recoveries)
    os.kill(executor, signal.SIGKILL)
    await_status(handle, lambda now: len(now.recoveries) > known and is_live(now))


@pytest.mark.timeout(300)
def test_words_are_counted_once_over_changes_of_widths_by_resumes_a_rollback_and_while_the_job_runs(
    context: SparkContext, tmp_path: Path
) -> None:
    words = WordCount(tmp_path)
    before = words.run_to(context, 100, widths=("count=2",))
    words.run_to(context, 200, widths=("count=4",))
    words.run_to(context, 300, widths=("count=2",))
    words.check(300)
    words.gate.open_to(200)
    with words.start(context, widths=("count=2",), checkpoint=before) as handle:
        await_status(handle, is_live)
        words.wait_for_output(handle, 200)
        words.check(200)
        assert handle.rescale(count=4, timeout=LIMIT_S).widths["count"] == width_of(handle) == 4
        kill_executor(handle)
        words.gate.open_to(400)
        words.wait_for_output(handle, 400)
        done = handle.rescale(count=2, timeout=LIMIT_S)
        assert done.widths["count"] == width_of(handle) == 2
        words.gate.end(500)
        handle.wait(LIMIT_S)
    words.check(500)
