"""Driver process before it has a job: it imports what drivers need, until its standard input names the job's folder.

The first line of the input is the hash seed of slots, the second a ``Handover``. The end of the input is the end of the
server, and of this process.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from clonos.io.process.fork_server_process import WARM_MODULES, ForkServerProcess
from clonos.io.system.readiness import wait_readable
from clonos.server.supervision.job_folder import JobFolder

INPUT_FD: Final = 0

DRIVER_MODULES: Final = (
    "clonos.job.handle",
    "clonos.job.description",
    "clonos.job.script.script_exit",
    "clonos.api.stream",
    "clonos.api.keyed_stream",
    "clonos.connectors.files",
    "clonos.api.plan.compiling",
    "clonos.api.checks.code.code_check",
    "clonos.api.checks.keyed_sinks",
    "clonos.api.columns.narrowing",
    "clonos.io.process.processes",
    "clonos.operators.columnar.by_names",
    "clonos_standby.driver.printed_lines",
    "clonos.server.job_api.log_ring",
    "clonos.server.job_api.server_thread",
    "clonos.server.supervision.driver_link",
)
"""Modules that drivers import, in the order in which they do. A driver that has its job already imports them itself."""


class Handover(msgspec.Struct, frozen=True):
    """Order to drive a job: its folder, and the number of its driver."""

    folder: str
    attempt: int


@dataclass(frozen=True, slots=True)
class SpareSlots:
    """Fork server that waits for a job, and the hash seed of its slots."""

    hash_seed: str
    fork_server: ForkServerProcess


@dataclass(frozen=True, slots=True)
class TakenJob:
    """Job that this process is to drive."""

    folder: JobFolder
    attempt: int
    slots: SpareSlots


def waited_for_a_job() -> TakenJob | None:
    """Imports and waits; returns None when the server ends first. Standard input and output are a driver's then."""
    with open(INPUT_FD, "rb", buffering=0, closefd=False) as lines:  # buffered lines would not be seen
        hash_seed = lines.readline().decode("ascii").strip()
        if not hash_seed:
            return None
        slots = SpareSlots(hash_seed, ForkServerProcess.start(hash_seed, WARM_MODULES))
        for name in DRIVER_MODULES:
            if wait_readable(INPUT_FD, 0):
                break
            importlib.import_module(name)
        line = lines.readline()
    if not line.endswith(b"\n"):
        slots.fork_server.discard()
        return None
    handover = msgspec.json.decode(line, type=Handover)
    folder = JobFolder(Path(handover.folder))
    _open_standard_files(folder)
    return TakenJob(folder, handover.attempt, slots)


def _open_standard_files(folder: JobFolder) -> None:
    """Points the standard files to those of the job."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for opened, descriptor in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(opened, descriptor)
    os.close(nothing)
    os.close(output)
