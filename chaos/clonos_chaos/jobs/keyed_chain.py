"""Chain of a fuzz job whose widths change: its source reads splits, each of which has the offsets of one key.

So the state that a source has of a key moves with the split, as that of other steps moves with the group of the key.
"""

from __future__ import annotations

from typing import Any, cast

from clonos.core.ports.operator_chain import ChainContext, Mirror, NothingToRead
from clonos.core.values import decode_value, encode_value
from clonos_chaos.jobs.fuzz_chain import KEYS, FuzzChain, SharedByChains

WAITING = "waiting"
"""Key of the state that has the rows that wait for a flush. They have lost their keys, as those in front of a sink."""

Position = tuple[dict[int, int], list[int]]
"""Position of a source: the next record of each of its splits, and the splits that any task has found."""


class SharedByKeyedChains(SharedByChains):
    """State that the chains of a job share. ``appears_ns``: when each split appears, after the first look for it; empty
    if all are there from the start."""

    appears_ns: list[int]
    looked_ns: int | None = None  # when a task first looked for splits
    records: int

    def offsets(self, split: int) -> range:
        """Returns the offsets of a split."""
        return range(split, self.records, KEYS)


class KeyedChain(FuzzChain):
    """Chain of one incarnation."""

    job: SharedByKeyedChains

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        super().open(context, mirror, position)
        if position is None and context.vertex == 0:
            known = [] if self.job.appears_ns else list(range(KEYS))
            self.position = dict.fromkeys(filter(self._is_own, known), 0), known

    def _is_own(self, split: int) -> bool:
        return split % self.context.parallelism == self.context.index

    def _hold_or_send(self, rows: list[tuple[int, Any]]) -> None:
        count = self.work.flush_count
        if not count:
            super()._hold_or_send(rows)
            return
        waiting = [*self.state.get(WAITING, []), *rows]
        whole = len(waiting) // count * count
        self._wait(waiting[whole:])
        self._send(waiting[:whole])

    def _wait(self, rows: list[tuple[int, Any]]) -> None:
        if rows or WAITING in self.state:
            self._set(WAITING, rows)

    def drain(self) -> None:
        """Sends the rows that wait."""
        waiting = self.state.get(WAITING, [])
        self._wait([])
        self._send(waiting)

    def end_of_input(self) -> None:
        super().end_of_input()
        self.drain()

    def _splits(self) -> Position:
        return cast(Position, self.position)

    def discover_splits(self, now_ns: int) -> bytes:
        """Returns the splits of this task that have appeared and that no task has found."""
        job, (_, known) = self.job, self._splits()
        if job.looked_ns is None:
            job.looked_ns = now_ns
        found = [split for split in self._awaited(known) if job.appears_ns[split] <= now_ns - job.looked_ns]
        return encode_value(found) if found else b""

    def add_splits(self, splits: bytes) -> None:
        positions, known = self._splits()
        found = cast("list[int]", decode_value(splits))
        self.position = positions | dict.fromkeys(found, 0), [*known, *found]

    def _awaited(self, known: list[int]) -> list[int]:
        return [split for split in range(KEYS) if self._is_own(split) and split not in known]

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        positions, known = self._splits()
        left = {split: len(self.job.offsets(split)) - at for split, at in positions.items()}
        if not any(left.values()):
            return NothingToRead.NOW if self._awaited(known) else NothingToRead.ALL_READ
        split = max(sorted(left), key=left.__getitem__)
        return split, min(left[split], records_max)

    def read(self, split: int, count: int) -> None:
        positions, known = self._splits()
        first = positions[split]
        self.position = positions | {split: first + count}, known
        rows: list[Any] = [(offset, ()) for offset in self.job.offsets(split)[first : first + count]]
        self._process(rows)


def dealt(found: list[Position], index: int, width: int) -> Position:
    """Returns the position of one of ``width`` source tasks that take over those of earlier ones."""
    positions = sorted((split, at) for splits, _ in found for split, at in splits.items())
    return dict(positions[index::width]), sorted({split for _, known in found for split in known})
