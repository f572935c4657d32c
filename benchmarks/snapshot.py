"""Large keyed state: what a barrier costs the task, what its snapshot costs until it is durable, and to restore it.

A million keys with 500 bytes each (fewer with --quick), in one process: full, then with 1 % of the keys changed. The
image that is restored is compared with the state. Times are processor time of this process, per GB of values.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

from benchmarks.comparing import Session
from benchmarks.tally import WrongResult
from clonos.core.ids import CheckpointId, Incarnation, TaskId
from clonos.core.snapshots import SNAPSHOT_FORMAT, Snapshot, decode_snapshot, encode_snapshot
from clonos.io.store import CheckpointStore
from clonos.operators.state import StateBackend, StateImage, Table

KEYS: Final = 1_000_000
KEYS_QUICK: Final = 100_000
VALUE_BYTES: Final = 500
CHANGED_SHARE: Final = 0.01
BYTES_A_GB: Final = 1e9
NAME: Final = "count/state"


def run(session: Session) -> None:
    """Full, incremental, restored."""
    keys = KEYS_QUICK if session.is_quick else KEYS
    size_gb = keys * VALUE_BYTES / BYTES_A_GB
    stream = Random(5)
    state = StateBackend(None, 128)
    table = state.table(NAME)
    for number in range(keys):
        table.set(f"key{number}", stream.randbytes(VALUE_BYTES))
    gc.collect()
    session.say(f"{keys:,} keys of {VALUE_BYTES} bytes, {size_gb:g} GB")
    image = StateImage()
    with tempfile.TemporaryDirectory(prefix="clonos-bench-") as folder:
        store = CheckpointStore(folder)
        full, pause_s = _timed(lambda: state.changes(True))
        _tell(session, "full", size_gb, pause_s, _store(store, "full", full), ("<= 0.03", "<= 0.5"))
        _, restore_s = _timed(lambda: image.apply(decode_snapshot(store.read_object("full"), "full").changes))
        session.figure("restore", restore_s / size_gb, "s a GB", "<= 2")
        del full
        gc.collect()
        for number in stream.sample(range(keys), int(keys * CHANGED_SHARE)):
            table.set(f"key{number}", stream.randbytes(VALUE_BYTES))
        part, pause_s = _timed(lambda: state.changes(False))
        _tell(session, "1 % changed", size_gb, pause_s, _store(store, "part", part), ("<= 0.015", "<= 0.15"))
        _, update_s = _timed(lambda: image.apply(part))
        session.figure("1 % changed: a standby takes it in", update_s / size_gb, "s a GB")
    _check(image, table)


def _store(store: CheckpointStore, name: str, changes: bytes) -> float:
    """Encodes and writes a snapshot; the time."""
    snapshot = Snapshot(
        format=SNAPSHOT_FORMAT,
        task=TaskId(0),
        incarnation=Incarnation(1),
        checkpoint=CheckpointId(1),
        previous=CheckpointId(-1),
        inputs=(),
        outputs=(),
        ended=(),
        log_offset_bytes=0,
        instant_ns=0,
        final=False,
        position=b"",
        changes=changes,
        chain_length=1,
        records_in=0,
    )
    return _timed(lambda: store.write_object(name, encode_snapshot(snapshot)))[1]


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begun_s = time.process_time()
    result = call()
    return result, time.process_time() - begun_s


def _tell(session: Session, name: str, size_gb: float, pause_s: float, store_s: float, goals: tuple[str, str]) -> None:
    session.figure(f"{name}: pause of the task", pause_s / size_gb, "s a GB", goals[0])
    session.figure(f"{name}: encoded and stored behind it", store_s / size_gb, "s a GB")
    session.figure(f"{name}: complete", (pause_s + store_s) / size_gb, "s a GB", goals[1])


def _check(image: StateImage, table: Table) -> None:
    if image.tables != {NAME: table.entries}:
        raise WrongResult("the restored image is not the state")
