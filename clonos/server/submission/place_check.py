"""Check of the places that a submitted job names: its checkpoint store, and the savepoint from which it starts.

A start would refuse the same places with the same errors. It comes later, when nobody waits for its answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from clonos.api.graph import JobGraph
from clonos.config import JobSettings
from clonos.core.model.errors import ClonosError, JobError
from clonos.io.store.object_files import LocalFiles
from clonos.io.store.store import CheckpointStore
from clonos.io.system.entropy import random_bytes
from clonos.job.starting import JobStart, identity_of

PLACES_TIMEOUT_S: Final = 20.0


class PlacesSilent(JobError):
    """The store or the savepoint of a job did not answer in time."""

    places: tuple[str, ...]

    def __str__(self) -> str:
        where = " and ".join(self.places)
        return f"{where} did not answer within {PLACES_TIMEOUT_S:.0f} s: see that the server's machine can reach it."


def check_places(graph: JobGraph, settings: JobSettings) -> None:
    """Reads and writes the store, and reads the savepoint, as the first start of the job will.

    Raises: what the start would: StoreFailed, StoreUnsupported, StoreOfAnotherJob, SavepointMissing, SavepointUnfit
    and others. PlacesSilent.
    """
    run = settings.run
    places = tuple(place for place in (run.store, run.from_savepoint) if place)
    in_time(lambda: _check(graph, settings), PLACES_TIMEOUT_S, PlacesSilent(places))


def _check(graph: JobGraph, settings: JobSettings) -> None:
    run = replace(settings.run, resume=True)
    store = CheckpointStore(run.store)
    start = JobStart(store, identity_of(graph), run)
    start.find()
    if run.from_savepoint and not start.is_resume:
        image = graph.compile(settings.core, parallelism=run.parallelism, splits=start.splits(graph))
        start.check_fit(image)
    _try_to_write(store)


def _try_to_write(store: CheckpointStore) -> None:
    """Writes, reads and deletes an object. Raises: StoreFailed."""
    files, name = store.files, f"try-{random_bytes(8).hex()}"
    is_new = isinstance(files, LocalFiles) and not files.root.exists()
    try:
        files.write(name, name.encode())
        files.read(name)
        files.delete(name)
    finally:
        if is_new and isinstance(files, LocalFiles):
            files.remove_empty_folders()


def in_time(call: Callable[[], object], limit_s: float, late: ClonosError) -> None:
    """Makes a call that cannot be interrupted. Raises: what it raises. ``late``: it has not ended within the limit."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 the caller raises it
            raised.append(error)

    thread = threading.Thread(target=run, name="check of places", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise late
    if raised:
        raise raised[0]
