"""State in columns: pause, snapshot and restore of 1 GB of keys with four columns, and of a million keys.

Times are processor time, of the task's thread for a pause. Steps beside a snapshot are wall-clock time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from threading import Thread
from typing import Any, Final

import numpy
import pyarrow
from numpy.typing import NDArray

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from clonos.core.ports.operator_chain import Pieces
from clonos.io.store.store import CheckpointStore
from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.keyed_state import StateBackend, StateImage

SPEC: Final = ColumnSpec(
    (pyarrow.int64(),), {"n": numpy.int64, "total": numpy.float64, "least": numpy.int64, "most": numpy.int64}
)
NAME: Final = "count/state"
KEYS: Final = 25_000_000
KEYS_QUICK: Final = 1_000_000
KEYS_OF_RESTORE: Final = 1_000_000
KEY_BYTES: Final = 40
BATCH: Final = 8192
STEPS: Final = 200


def measure_columns(session: Session) -> None:
    """Measures state in columns.

    Raises: WrongResult: what was restored is not the state.
    """
    _restore_of_a_million_keys(session)
    keys = KEYS_QUICK if session.is_quick else KEYS
    size_gb = keys * KEY_BYTES / 1e9
    random = numpy.random.default_rng(7)
    backend, table = _filled(keys)
    backend.changes(False)
    session.progress(f"{keys:,} keys of {KEY_BYTES} bytes in columns, {size_gb:g} GB")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        store = CheckpointStore(folder)
        times = [_one_percent(backend, table, store, random) for _ in range(5)]
        session.figure("columns, 1 % changed: pause of the task, longest of 5", max(p for p, _ in times), "ms", "<= 5")
        session.figure("columns, 1 % changed: complete", statistics.median(s for _, s in times) / size_gb, "s a GB")
        plain_ms = [_step_ms(table, random) for _ in range(STEPS)]
        backend.changes(False)
        pieces, pause_s = _timed(lambda: _whole(backend), time.thread_time)
        session.figure("columns, full: pause of the task", pause_s * 1e3, "ms", "<= 5")
        _, encoded_s = _timed(lambda: sum(map(len, pieces)), time.process_time)
        _, stored_s = _timed(lambda: store.write_object("full", pieces), time.process_time)
        session.figure("columns, full: encoded", encoded_s / size_gb, "s a GB")
        session.figure("columns, full: complete", (pause_s + stored_s) / size_gb, "s a GB", "<= 0.5")
        expected = {name: array[: len(table)].copy() for name, array in table.values.items()}
        writer = Thread(target=lambda: store.write_object("full", pieces))
        writer.start()
        beside_ms = [_step_ms(table, random)]
        while writer.is_alive():
            beside_ms.append(_step_ms(table, random))
        writer.join()
        pieces.release()
        backend.merge_overlay()
        session.figure("columns, a step of 8,192 keys, median", statistics.median(plain_ms), "ms")
        session.figure("columns, a step while all is stored, median", statistics.median(beside_ms), "ms")
        session.figure("columns, a step while all is stored, longest", max(beside_ms), "ms")
        image, restore_s = _timed(lambda: _image(store.read_object("full")), time.process_time)
        session.figure("columns, restore", restore_s / size_gb, "s a GB", "<= 1")
        found = image.columns[NAME]
        if any((found.columns[name][: found.count] != array).any() for name, array in expected.items()):
            raise WrongResult("what was restored is not the state")


def _restore_of_a_million_keys(session: Session) -> None:
    backend, table = _filled(KEYS_OF_RESTORE)
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        store = CheckpointStore(folder)
        backend.changes(False)
        store.write_object("million", _whole(backend))
        times_ms = []
        for _ in range(5):
            begun_s = time.process_time()
            image = _image(store.read_object("million"))
            restored = StateBackend(image).column_table(NAME, SPEC)
            restored.find(numpy.zeros(1, numpy.int64))  # makes the index
            times_ms.append((time.process_time() - begun_s) * 1e3)
            if (restored.values["n"][: len(restored)] != table.values["n"][: len(table)]).any():
                raise WrongResult("what was restored is not the state")
    session.figure("columns, restore of a million keys with its index", statistics.median(times_ms), "ms", "<= 150")


def _filled(keys: int) -> tuple[StateBackend, ColumnTable]:
    backend = StateBackend(None)
    table = backend.column_table(NAME, SPEC)
    for first in range(0, keys, 1 << 16):
        slots = table.slots(numpy.arange(first, min(first + (1 << 16), keys)) * 7919)
        for array in table.values.values():
            array[slots] = slots
    return backend, table


def _one_percent(
    backend: StateBackend, table: ColumnTable, store: CheckpointStore, random: numpy.random.Generator
) -> tuple[float, float]:
    """Changes 1 % of the slots; returns the pause in ms and the time until all is stored in s."""
    for _ in range(max(1, len(table) // 100 // BATCH)):
        _step_ms(table, random)
    (changes, more), pause_s = _timed(lambda: backend.take(False), time.thread_time)
    _, stored_s = _timed(lambda: store.write_object("part", (changes, *(more or ()))), time.process_time)
    if more is not None:
        more.release()
    backend.merge_overlay()
    return pause_s * 1e3, pause_s + stored_s


def _step_ms(table: ColumnTable, random: numpy.random.Generator) -> float:
    keys: NDArray[numpy.int64] = random.integers(0, len(table), BATCH) * 7919
    begun_s = time.perf_counter()
    slots = table.slots(keys)
    table.touch(slots)
    values = table.values
    numpy.add.at(values["n"], slots, 1)
    numpy.add.at(values["total"], slots, 1.5)
    return (time.perf_counter() - begun_s) * 1e3


def _whole(backend: StateBackend) -> Pieces:
    whole = backend.whole()
    assert whole is not None, "nothing is read"
    return whole


def _image(pieces: Any) -> StateImage:
    image = StateImage()
    for piece in pieces:
        image.apply(piece)
    return image


def _timed(call: Callable[[], Any], clock: Callable[[], float]) -> tuple[Any, float]:
    begun_s = clock()
    result = call()
    return result, clock() - begun_s
