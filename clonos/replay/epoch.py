"""A recorded epoch of a task in memory: all that the task needs to do again what it did (docs/debugging.md).

A task is a function of its snapshot, its log and its input. What is compared is a digest of each payload that it
emitted; the payloads themselves are not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from clonos.core.log import determinants as d
from clonos.core.model.ids import ChannelId
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.wire.capture_messages import Elements
from clonos.io.epochs.record_parts import EmittedOutput, RecordHead, SourceRecords


class Epoch(NamedTuple):
    """Record of an epoch, see ``clonos.io.epochs.record_parts`` for its parts.

    ``image``: the pickled ``JobImage``. ``state``: the objects that restore the snapshot, oldest first, each with its
    name and pieces; none at the start of a job. ``expected`` is in the order of emission for each channel.
    ``sources``: texts of the job's own source files by their names.
    """

    folder: str
    head: RecordHead
    image: bytes
    log: bytes
    snapshot: Snapshot | None = None
    state: tuple[tuple[str, tuple[bytes, ...]], ...] = ()
    input: Mapping[ChannelId, tuple[Elements, ...]] = {}
    reads: tuple[SourceRecords, ...] = ()
    journal: bytes = b""
    expected: tuple[EmittedOutput, ...] = ()
    sources: Mapping[str, str] = {}

    @property
    def task(self) -> str:
        """Name of the task."""
        return self.head.task

    @property
    def has_code(self) -> bool:
        """Whether the record has the job. Otherwise ``replay_session.with_code`` takes one."""
        return bool(self.image)

    @property
    def hash_seed(self) -> str:
        """``PYTHONHASHSEED`` of the job, "" if it is not known: a process that runs the tasks in its threads has drawn
        its own."""
        found = self.head.versions.get("hash_seed", "")
        return found if found.isdigit() else ""


class LogFigures(NamedTuple):
    """Figures of a log. ``first_ns``, ``last_ns``: the first and the last reading of the clock, 0 without one."""

    steps: int
    calls: int
    timers: int
    first_ns: int
    last_ns: int


def figures_of(epoch: Epoch) -> LogFigures:
    """Counts the entries of an epoch's log."""
    steps = calls = timers = first_ns = 0
    instant_ns = epoch.snapshot.instant_ns if epoch.snapshot is not None else 0
    reader = d.LogReader(epoch.log, epoch.head.log_offset_bytes)
    while not reader.at_end:
        tag, first, _, _ = reader.next()
        steps += tag in (d.STEP, d.READ)
        calls += tag in (d.CALL, d.COMPLETION)
        timers += tag == d.TIMER
        if tag in (d.CLOCK, d.TIMER):
            instant_ns += first
            first_ns = first_ns or instant_ns
    return LogFigures(steps, calls, timers, first_ns, instant_ns if first_ns else 0)
