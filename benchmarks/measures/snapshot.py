"""Benchmark: snapshots of large keyed state: pause of the task, time until the snapshot is durable, and restore.

A million keys with 500 bytes each (fewer with --quick), in one process: the whole state is stored while a task counts
on, then a snapshot with 1 % of the keys changed, then both are restored and compared with the state at the barrier.
Times are processor time of this process per GB of values, unless stated otherwise. The same follows for state in
columns.
"""

from __future__ import annotations

import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from random import Random
from threading import Thread
from typing import Any, Final

from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from benchmarks.workloads.column_state import measure_columns
from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, RestoredState, encode_snapshot, restore_from
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.ports.operator_chain import Pieces
from clonos.core.ports.task_snapshot import Snapshot
from clonos.io.store.store import CheckpointStore
from clonos.operators.state.keyed_state import StateBackend, StateImage, Table
from clonos.operators.state.state_changes import Entries
from clonos_standby.launch_spec import SWITCH_INTERVAL_S

KEYS: Final = 1_000_000
KEYS_QUICK: Final = 100_000
VALUE_BYTES: Final = 500
CHANGED_SHARE: Final = 0.01
BYTES_A_GB: Final = 1e9
NAME: Final = "count/state"
STEP_KEYS: Final = 2_000
"""Keys that a step of the concurrent task sets."""

STEPS_BEFORE: Final = 50
STEPS_AFTER: Final = 500


def run(session: Session) -> None:
    """Measures a whole snapshot, an incremental one, and their restore."""
    keys = KEYS_QUICK if session.is_quick else KEYS
    size_gb = keys * VALUE_BYTES / BYTES_A_GB
    stream = Random(5)
    state = StateBackend(None)
    table = state.table(NAME)
    for number in range(keys):
        table.set(f"key{number}", stream.randbytes(VALUE_BYTES))
    state.changes(False)
    gc.collect()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    session.progress(f"{keys:,} keys of {VALUE_BYTES} bytes, {size_gb:g} GB")
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        store = CheckpointStore(folder)
        whole, pause_s = _timed(lambda: _whole(state))
        _, store_s = _timed(lambda: store.write_object("full", _object(b"", whole)))
        whole.release()
        state.merge_overlay()
        _record_figures(session, "full", size_gb, pause_s, store_s, ("<= 0.03", "<= 0.5"))
        restored, restore_s = _timed(lambda: _restored(store, "full"))
        session.figure("restore", restore_s / size_gb, "s a GB", "<= 2")
        _check(restored, dict(table.entries))
        _beside_a_task(session, store, state, stream, keys)
        state.changes(False)
        for number in stream.sample(range(keys), int(keys * CHANGED_SHARE)):
            table.set(f"key{number}", stream.randbytes(VALUE_BYTES))
        (changes, more), pause_s = _timed(lambda: state.take(False))
        _, store_s = _timed(lambda: store.write_object("part", _object(changes, more)))
        _record_figures(session, "1 % changed", size_gb, pause_s, store_s, ("<= 0.015", "<= 0.15"))
        _, update_s = _timed(lambda: [restored.mirror.apply(piece) for piece in (changes, *(more or ()))])
        session.figure("1 % changed: a standby takes it in", update_s / size_gb, "s a GB")
    measure_columns(session)


def _beside_a_task(session: Session, store: CheckpointStore, state: StateBackend, stream: Random, keys: int) -> None:
    """Stores the whole state while a task takes steps; checks that the snapshot has the state at the barrier."""
    table = state.table(NAME)
    expected = dict(table.entries)
    plain_ms = [_step_ms(table, stream, keys, state) for _ in range(STEPS_BEFORE)]
    state.changes(False)
    expected.update(table.entries)
    whole = _whole(state)
    begun_s = time.perf_counter()
    writer = Thread(target=lambda: store.write_object("beside", _object(b"", whole)))
    writer.start()
    beside_ms = []
    while writer.is_alive():
        beside_ms.append(_step_ms(table, stream, keys, state))
    stored_s = time.perf_counter() - begun_s
    writer.join()
    whole.release()
    after_ms = [_step_ms(table, stream, keys, state) for _ in range(STEPS_AFTER)]
    session.progress(f"stored beside {len(beside_ms)} steps of {STEP_KEYS:,} keys in {stored_s:.2f} s")
    session.figure("a step, median", statistics.median(plain_ms), "ms")
    session.figure("a step while all is stored, median", statistics.median(beside_ms), "ms")
    session.figure("a step while all is stored, longest", max(beside_ms), "ms")
    session.figure("a step after that, longest", max(after_ms), "ms")
    _check(_restored(store, "beside"), expected)


def _step_ms(table: Table, stream: Random, keys: int, state: StateBackend) -> float:
    """Returns the wall-clock time of a step in ms."""
    numbers = stream.choices(range(keys), k=STEP_KEYS)
    value = stream.randbytes(VALUE_BYTES)
    begun_s = time.perf_counter()
    state.merge_overlay()
    entries, changed = table.entries, table.changed
    get = entries.get
    for number in numbers:
        key = f"key{number}"
        entries[key] = value if get(key) else b""
        changed[key] = None
    return (time.perf_counter() - begun_s) * 1e3


def _whole(state: StateBackend) -> Pieces:
    whole = state.whole()
    assert whole is not None, "nothing is read"
    return whole


def _object(changes: bytes, pieces: Pieces | None) -> Iterator[bytes]:
    """Encodes a snapshot as the store gets it."""
    snapshot = Snapshot(
        format=SNAPSHOT_FORMAT,
        task=TaskId(0),
        incarnation=Incarnation(1),
        checkpoint=CheckpointId(1),
        previous=None,
        inputs=(),
        outputs=(),
        ended=(),
        log_offset_bytes=0,
        instant_ns=0,
        final=False,
        position=b"",
        changes=changes,
    )
    return chain((encode_snapshot(snapshot),), pieces or ())


def _restored(store: CheckpointStore, name: str) -> RestoredState:
    return restore_from([(name, store.read_object(name))], StateImage())


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begun_s = time.process_time()
    result = call()
    return result, time.process_time() - begun_s


def _record_figures(
    session: Session, name: str, size_gb: float, pause_s: float, store_s: float, goals: tuple[str, str]
) -> None:
    session.figure(f"{name}: pause of the task", pause_s / size_gb, "s a GB", goals[0])
    session.figure(f"{name}: complete", (pause_s + store_s) / size_gb, "s a GB", goals[1])


def _check(restored: RestoredState, expected: Entries) -> None:
    image = restored.mirror
    if not isinstance(image, StateImage) or image.tables != {NAME: expected}:
        raise WrongResult("what was restored is not the state")
