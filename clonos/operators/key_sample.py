"""Sample of the keys that a task receives, from which the status names the hottest one.

The work per batch is a slice, and per record a small part of a dict's update. The sample is no state: an incarnation
begins with an empty one, and another thread reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from clonos.core.values.column_keys import values_of
from clonos.core.values.keys import key_of, state_keys
from clonos.kernels.record_batch import RecordBatch

STRIDE: Final = 61
"""Every 61st record is sampled: a prime, because input may repeat after a round number of records."""

OF_BATCH_MAX: Final = 64
"""Records of a batch of columns that are sampled, unless it is very large."""

STRIDES: Final = (61, 127, 251, 509, 1021, 2039, 4093, 8191)
"""Strides in batches of columns, by their size; a record stands for several at those above ``STRIDE``."""

SAMPLED_MAX: Final = 1024
"""Number of keys in the sample at which all counts are halved, so that it is of about the last 60,000 records."""

SAMPLED_MIN: Final = 64
"""Number of sampled keys below which no key is named."""

SHARE_MIN: Final = 0.1
"""Share of the sample below which no key is named."""

KEY_CHARACTERS_MAX: Final = 60


class KeySample:
    """Sample of the keys of one task's input."""

    __slots__ = ("_counts", "_next", "_total")

    def __init__(self) -> None:
        self._counts: dict[Any, int] = {}
        self._total = 0
        self._next = STRIDE - 1  # index of the next record to sample, in the batch that comes

    def __len__(self) -> int:
        """Returns the number of keys that it counts."""
        return len(self._counts)

    def see_pairs(self, pairs: list[Any]) -> None:
        """Samples the keys of rows (key, value)."""
        if self._next < len(pairs):
            self._add([key for key, _ in pairs[self._next :: STRIDE]])
        self._pass(len(pairs))

    def see_keys(self, keys: list[Any]) -> None:
        """Samples keys."""
        if self._next < len(keys):
            self._add(keys[self._next :: STRIDE])
        self._pass(len(keys))

    def see_columns(self, batch: RecordBatch, keys: tuple[str, ...]) -> None:
        """Samples the keys of a batch of columns, of which ``keys`` are the key."""
        if self._next < batch.num_rows:
            import numpy  # a process that handles columns has it

            stride = next((each for each in STRIDES if each * OF_BATCH_MAX >= batch.num_rows), STRIDES[-1])
            places = numpy.arange(self._next, batch.num_rows, stride)
            self._add(values_of([batch.column(key).take(places) for key in keys]), round(stride / STRIDE))
        self._pass(batch.num_rows)

    def hottest(self) -> tuple[str, int] | None:
        """Returns the key of which most of the latest records are, as text, and its share of them in percent; None if
        no key stands out. Any thread may call this."""
        counts = self._counts.copy()  # indivisible, unlike an iteration
        total = sum(counts.values())
        if total < SAMPLED_MIN:
            return None
        hottest = max(counts, key=counts.__getitem__)
        if counts[hottest] < SHARE_MIN * total:
            return None
        return _text(key_of(hottest)), round(100 * counts[hottest] / total)

    def _pass(self, count: int) -> None:
        self._next = (self._next - count) % STRIDE if self._next < count else self._next - count

    def _add(self, keys: Iterable[Any], weight: int = 1) -> None:
        counts = self._counts
        stored = state_keys(list(keys))
        for key in stored:
            counts[key] = counts.get(key, 0) + weight
        self._total += weight * len(stored)
        if self._total >= SAMPLED_MAX:
            self._counts = {key: count >> 1 for key, count in counts.items() if count > 1}
            self._total = sum(self._counts.values())


def _text(key: object) -> str:
    try:
        found = repr(key)
    except Exception as raised:  # noqa: BLE001  the user's __repr__
        return f"<its repr raised {type(raised).__name__}>"
    return found if len(found) <= KEY_CHARACTERS_MAX else f"{found[: KEY_CHARACTERS_MAX - 3]}..."
