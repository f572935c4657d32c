"""Slots on Spark executors: one Spark job with a single partition each, submitted from its own thread.

Spark places a slot, ships its launch spec, and adds executors when slots wait; a failed slot only fails its own job.
Spark's second attempt at a task returns at once, because its token is used up and the driver requests a new slot
anyway.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException

from clonos.io.process.slot_provider import Listener, SlotEnded
from clonos.spark.session import import_path

END_TIMEOUT_S: Final = 10.0
"""Seconds that cancelled slots have to end."""

_providers: Final = itertools.count()


class SparkSlots:
    """Slot provider on the executors of ``context``. One thread calls ``order``, ``withdraw`` and ``close``."""

    def __init__(self, context: SparkContext, listener: Listener) -> None:
        self._context = context
        self._listener = listener
        self._tag = f"clonos-slots-{next(_providers)}"
        self._path = import_path()
        self._threads: list[threading.Thread] = []
        self._withdrawn: set[int] = set()
        self._is_closing = False

    def order(self, launch_spec: bytes, avoid_domains: Collection[str] = ()) -> int:
        """Submits one more slot. Spark chooses its executor, regardless of ``avoid_domains``."""
        number = len(self._threads)
        thread = InheritableThread(
            target=self._run, args=(number, launch_spec), name=f"slot order {number}", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return number

    def withdraw(self, order: int) -> bool:
        """Cancels the job of a slot for which Spark has no free core yet. Returns whether that was so."""
        if order in self._withdrawn or not self._waits_for_core(order):
            return False
        self._withdrawn.add(order)
        self._context.cancelJobsWithTag(self._tag_of(order))
        return True

    def _waits_for_core(self, order: int) -> bool:
        tracker = self._context.statusTracker()
        of_jvm: Any = self._context._jsc.sc().statusTracker()  # Python's has no jobs by tag
        jobs = [tracker.getJobInfo(job) for job in of_jvm.getJobIdsForTag(self._tag_of(order))]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return any(jobs) and all(
            stage is None or not (stage.numActiveTasks or stage.numCompletedTasks or stage.numFailedTasks)
            for stage in stages
        )

    def _tag_of(self, order: int) -> str:
        return f"{self._tag}-{order}"

    def close(self) -> None:
        """Cancels the jobs of running slots and waits for their end."""
        self._is_closing = True
        if any(thread.is_alive() for thread in self._threads):
            self._context.cancelJobsWithTag(self._tag)
        for thread in self._threads:
            thread.join(END_TIMEOUT_S)

    def _run(self, number: int, launch_spec: bytes) -> None:
        self._context.addJobTag(self._tag)
        self._context.addJobTag(self._tag_of(number))
        self._context.setLocalProperty("spark.job.description", f"clonos slot {number}")
        try:
            self._context.parallelize([number], 1).mapPartitions(slot_job(launch_spec, self._path)).collect()
            reason = ""
        except (Py4JError, PySparkException) as error:  # PySparkException: when a SparkSession exists
            reason = "" if self._is_closing or number in self._withdrawn else failure_reason(error)
        self._listener(SlotEnded(number, reason))


WORKER_FAILED = "Error from python worker:"
"""Beginning of Spark's message when the executors' Python did not start."""


def slot_job(launch_spec: bytes, path: str) -> Callable[[Iterable[int]], Iterator[int]]:
    """Returns the function that the executor runs. It is nested, so that it is pickled by value and needs no import
    there."""

    def run(numbers: Iterable[int]) -> Iterator[int]:
        import os
        import sys

        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            return iter(())
        # The driver's path makes the library importable on executors that share its disk without an installation.
        sys.path.extend(entry for entry in path.split(os.pathsep) if entry not in sys.path and os.path.exists(entry))
        try:
            import cloudpickle

            from clonos.spark.domain import own_domain
        except ImportError as error:
            raise ImportError(
                f"{error}: the executors' Python ({sys.executable}) cannot import clonos."
                " Install it there, or ship an environment with spark.archives (venv-pack, conda-pack)."
            ) from error
        cloudpickle.loads(launch_spec)(own_domain())
        return iter(())

    return run


def failure_reason(error: Py4JError | PySparkException) -> str:
    """Returns the lines of a failed Spark job that say what happened on the executor."""
    exception: Any = getattr(error, "java_exception", None)
    message = str(exception.getMessage()) if exception is not None else str(error)
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    if WORKER_FAILED in message:
        of_worker = [line.strip() for line in message.partition(WORKER_FAILED)[2].splitlines() if line.strip()]
        ends = [index for index, line in enumerate(of_worker) if line.startswith(("org.apache.", "at ", "java."))]
        return f"{WORKER_FAILED} " + "\n".join(of_worker[: ends[0] if ends else None])
    heads = [index for index, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if not heads:
        return lines[0] if lines else type(error).__name__
    traceback = [line for line in lines[heads[0] + 1 :] if not line.lstrip().startswith(("at ", "SQLSTATE"))]
    return "\n".join(["Traceback (most recent call last):", *traceback])
