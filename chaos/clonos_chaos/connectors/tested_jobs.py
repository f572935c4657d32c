"""Jobs around the connector under test, which a driver process makes from a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import cloudpickle

from clonos.connectors import collect, files, values
from clonos.io.process.pickling import pickled
from clonos.job import Job
from clonos.operators.connector_contract import keyed_sink
from clonos_chaos.scenario.scenario_gate import SOURCES, Gated
from clonos_services import random

TESTED: Final = "tested"
"""Name of the step under test."""

ROWS: Final = "rows"
"""Name of the job's own output, with which the rows of the connector are compared."""

DRAW_BITS: Final = 30
FILE: Final = "job.pickle"
PACKED: Final = f"{__name__}:packed_job"
"""Job that a driver process makes of the file in its folder."""

MakeJob = Callable[[Path], Job]


def pack_job(make: MakeJob, folder: Path) -> None:
    """Writes the function that makes a job into a folder."""
    (folder / FILE).write_bytes(pickled(make))


def packed_job(folder: Path) -> Job:
    """Makes the job of a folder."""
    make: MakeJob = cloudpickle.loads((folder / FILE).read_bytes())
    return make(folder)


def truth_folder(folder: Path) -> Path:
    """Returns where the job's own output is, which is exactly-once."""
    return folder / "rows"


def number_of(read: tuple[int, int]) -> int:
    """Returns the number of a record of the gated source."""
    source, offset = read
    return offset * SOURCES + source


def drawn(number: int) -> dict[str, int]:
    """Returns a row whose content a replay can only repeat from the causal log."""
    return {"n": number, "draw": random.getrandbits(DRAW_BITS)}


def sink_job(sink: Any, row: Callable[[dict[str, int]], Any], folder: Path) -> Job:
    """Makes the job: gated numbers -> draw -> files, and after an exchange the sink under test."""
    job = Job("sink-check", parallelism=SOURCES)
    numbers = job.source(Gated(folder), name="numbers", parallelism=SOURCES).map(number_of, name="number")
    _add_outputs(numbers, files.jsonl(truth_folder(folder)), sink, row)
    return job


def simulated_sink_job(sink: Any, row: Callable[[dict[str, int]], Any], records: int) -> Job:
    """Makes the same job for a simulated world."""
    job = Job("sink-check", parallelism=SOURCES)
    _add_outputs(job.source(values(range(records)), name="numbers"), collect(), sink, row)
    return job


def _add_outputs(numbers: Any, truth: Any, sink: Any, row: Callable[[dict[str, int]], Any]) -> None:
    """Adds both outputs. A sink with one row per key gets a keyed stream."""
    rows = numbers.map(drawn, name="draw")
    rows.sink(truth, name=ROWS)
    keyed = keyed_sink(sink)
    if keyed is not None:
        rows.key_by("n").sink(sink, name=TESTED)
    else:
        rows.rebalance().map(row, name=TESTED).sink(sink, name="sink")


def source_job(source: Any, number: Callable[[Any], int], per_second: int, folder: Path) -> Job:
    """Makes the job: source under test -> the number of each record -> after an exchange files."""
    job = Job("source-check", parallelism=SOURCES)
    numbers = job.source(source, name=TESTED).map(partial(paced, number, 1 / per_second), name="number")
    numbers.rebalance().map(as_row, name="row").sink(files.jsonl(truth_folder(folder)), name=ROWS)
    return job


def simulated_source_job(source: Any, number: Callable[[Any], int]) -> Job:
    """Makes the same job for a simulated world."""
    job = Job("source-check", parallelism=SOURCES)
    numbers = job.source(source, name=TESTED).map(number, name="number")
    numbers.rebalance().map(as_row, name="row").sink(collect(), name=ROWS)
    return job


def paced(number: Callable[[Any], int], seconds: float, record: Any) -> int:
    """Returns the number of a record, after a pause: kills then come in the middle of the load."""
    time.sleep(seconds)
    return number(record)


def as_row(number: int) -> dict[str, int]:
    """Returns the row of a number."""
    return {"n": number}


def plain_row(row: dict[str, int]) -> dict[str, int]:
    """Returns the row as it is."""
    return row
