"""A job on a Spark cluster whose executors come and go by their use, with dynamic allocation: ``make clusters``.

Each executor has one core, so there is one for each process of the job.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest
from pyspark import SparkConf, SparkContext

from clonos.demo.kills import EXECUTOR_CLASS
from clonos.job import Handle
from tests.clusters.cluster_job import LIMIT_S, wait_for
from tests.spark.test_spark_widths import WordCount, width_of

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets, pytest.mark.timeout(900)]

READERS: Final = 2
EXECUTORS_MAX: Final = READERS + 4
SETTINGS: Final = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": str(EXECUTORS_MAX),
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "1",
    "spark.python.worker.reuse": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
}
VARIABLES: Final = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONHASHSEED": "3141592653"}


@pytest.fixture(scope="session")
def context() -> Iterator[SparkContext]:
    """A session of the user's own."""
    configuration = SparkConf().setMaster(f"local-cluster[{EXECUTORS_MAX},1,512]").setAppName("elastic words")
    for name, value in SETTINGS.items():
        configuration.set(name, value)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in VARIABLES.items():
            patch.setenv(name, value)
        context = SparkContext(conf=configuration)
        yield context
        context.stop()


def _executors() -> int:
    """Executors whose JVM runs."""
    found = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            found += EXECUTOR_CLASS in " ".join(process.cmdline())
    return found


def _rescale(handle: Handle, tasks: int) -> None:
    done = handle.rescale(count=tasks, timeout=LIMIT_S)
    assert done.widths["count"] == width_of(handle) == tasks


def test_executors_come_for_more_tasks_and_are_taken_back_after_fewer_and_after_the_end(
    context: SparkContext, tmp_path: Path
) -> None:
    words = WordCount(tmp_path)
    words.gate.open_to(100)
    assert _executors() == 0
    with words.start(context, widths=("count=2",), slots_wait=f"{LIMIT_S:g}s") as handle:
        words.wait_for_output(handle, 100)
        assert _executors() == READERS + 2
        _rescale(handle, 4)
        assert _executors() == READERS + 4
        words.gate.open_to(200)
        words.wait_for_output(handle, 200)
        _rescale(handle, 2)
        wait_for(lambda: _executors() == READERS + 2, "the end of executors without a process")
        words.gate.end(300)
        handle.wait(LIMIT_S)
    words.check(300)
    wait_for(lambda: _executors() == 0, "the end of all executors")
