"""A job on YARN, by Hadoop's mini cluster, in an environment shipped with ``spark.archives``: ``make clusters``.

Executors run in containers of two node managers. They find Python and the library in the shipped environment only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pyspark
import pytest

from tests.clusters.cluster_job import RunningJob, expected, running, wait_for
from tests.clusters.mini_yarn import mini_yarn

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parent.parent.parent
TEXTS: Final = ["to be or not to be\n" * 100, "that is the question\n" * 100, "whether tis nobler\n" * 100]

JOB: Final = """
import os
import sys

import clonos
from clonos import Job, files

folder = os.environ["JOB_FOLDER"]
options = {"checkpoint_every": "500ms", "lease": "2s", "spare_slots": 2, "slots_wait": "170s"}
job = Job("words", parallelism=2, **options)

def row(found):
    return {"word": found[0], "count": found[1], "python": sys.executable, "library": clonos.__file__}

lines = job.source(files.lines(f"{folder}/in", watch="100ms"), name="read")
counts = lines.flat_map(str.split, name="split").key_by(lambda word: word).count(name="count")
counts.map(row, name="row").sink(files.jsonl(f"{folder}/out"))
"""

DEFAULTS: Final = """
spark.archives {archive}#environment
spark.authenticate true
spark.executor.cores 4
spark.executor.instances 2
spark.executor.memory 512m
spark.network.crypto.enabled true
spark.ui.enabled false
spark.yarn.am.memory 512m
spark.yarn.jars local:{jars}/*
spark.yarn.stagingDir file:{staging}
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An environment with the library and nothing of pyspark, packed as ``spark.archives`` takes it."""
    environment, packed = tmp_path / "environment", tmp_path / "environment.tar.gz"
    python = environment / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [str(python), "-m", "pip", "install", "--quiet", str(ROOT), "venv-pack"],
        [str(environment / "bin" / "venv-pack"), "--quiet", "--output", str(packed), "--prefix", str(environment)],
    ):
        subprocess.run(command, check=True)
    return packed


@pytest.fixture
def environment(tmp_path: Path, archive: Path) -> Iterator[dict[str, str]]:
    """Variables of a driver that submits to the cluster."""
    (tmp_path / "conf").mkdir()
    jars = Path(pyspark.__file__).parent / "jars"
    defaults = DEFAULTS.format(archive=archive, jars=jars, staging=tmp_path / "staging")
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults, "utf-8")
    with mini_yarn(tmp_path) as configuration:
        variables = {"HADOOP_CONF_DIR": str(configuration), "PYSPARK_PYTHON": "./environment/bin/python"}
        yield {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables


def _add(job: RunningJob, number: int) -> None:
    job.add(f"{number}.txt", TEXTS[number])
    wait_for(lambda: job.rows() == expected(*TEXTS[: number + 1]), f"the counts of {number + 1} texts")


def _executor_of(job: RunningJob, task: str) -> psutil.Process:
    worker = psutil.Process(job.tasks()[task]["pid"])
    return next(parent for parent in worker.parents() if parent.name() == "java")


def test_a_job_on_yarn_runs_in_the_environment_that_it_ships_and_survives_kills_of_tasks_and_of_an_executor(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with running(tmp_path, JOB, environment, "master=yarn") as job:
        assert len({task["domain"] for task in job.tasks().values()}) == 2
        _add(job, 0)
        job.kill("count-row/0")
        job.kill("read-split/0")
        _add(job, 1)
        executor = _executor_of(job, "count-row/0")
        containers = {slot["domain"] for slot in job.ask(f"/jobs/{job.job_id}/status")["slots"]}
        executor.kill()
        wait_for(lambda: not executor.is_running() and job.are_live(), "the tasks of the dead executor")
        _add(job, 2)
        new = wait_for(
            lambda: {slot["domain"] for slot in job.ask(f"/jobs/{job.job_id}/status")["slots"]} - containers,
            "another executor of YARN",
        )
        assert len(new) == 1
        job.stop()
    assert job.rows() == expected(*TEXTS)
    rows = [json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    for row in rows:
        assert "/environment/bin/python" in row["python"]
        assert "/environment/lib/" in row["library"]
