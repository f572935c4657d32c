"""KeySpans of keys that are Python objects: a table with the open spans of each key, oldest first.

A heap has them by the instant that opened them. It is made anew of the table, and is no part of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clonos.operators.event_time.timestamps import result_time_ns
from clonos.operators.kinds.instant_heap import InstantHeap
from clonos.operators.kinds.object_batch import ObjectBatch
from clonos.operators.operator import Operator
from clonos.operators.state.keyed_state import Table


class ObjectSpans:
    """Spans of each key. The table has the instants that opened them."""

    def __init__(self, table: Table, within_ns: int) -> None:
        self._table, self._within_ns = table, within_ns
        opened = ((opener_ns, key) for key, spans in table.contents().items() for opener_ns in spans)
        self._heap = InstantHeap([(opener_ns, number, key) for number, (opener_ns, key) in enumerate(opened)])

    @property
    def earliest_ns(self) -> int | None:
        """See ``KeySpans``."""
        return self._heap.earliest_ns

    def choose(self, batch: ObjectBatch, instants: Sequence[int]) -> list[int]:
        """See ``KeySpans``."""
        within_ns, table, opens = self._within_ns, self._table, self._heap.open
        entries, found = table.entries, []
        for place, (key, instant_ns) in enumerate(zip(batch.keys, instants, strict=True)):
            opened = entries.get(key, ())
            for opener_ns in opened:
                if -within_ns < instant_ns - opener_ns < within_ns:
                    break
            else:
                table.set(key, (*opened, instant_ns))
                opens(instant_ns, key)
                found.append(place)
        return found

    def end(self, opened_max_ns: int | None) -> None:
        """See ``KeySpans``."""
        table = self._table
        for opener_ns, _, key in self._heap.ended(opened_max_ns):
            opened = table.entries[key]
            if len(opened) == 1:
                table.delete(key)
            else:
                table.set(key, tuple([each for each in opened if each != opener_ns]))


class ObjectLastSpans:
    """Spans of each key with their last records.

    The table has (instant that opened it, number, latest instant, latest record) of each span.
    """

    def __init__(self, table: Table, within_ns: int, has_times: bool) -> None:
        self._table, self._within_ns, self._has_times = table, within_ns, has_times
        self._heap = InstantHeap([(span[0], span[1], key) for key, spans in table.contents().items() for span in spans])

    @property
    def earliest_ns(self) -> int | None:
        """See ``LastSpans``."""
        return self._heap.earliest_ns

    def openers(self, opened_max_ns: int | None) -> list[int]:
        """See ``LastSpans``."""
        return self._heap.instants(opened_max_ns)

    def take(self, batch: ObjectBatch, instants: Sequence[int]) -> None:
        """See ``LastSpans``."""
        within_ns, table = self._within_ns, self._table
        entries = table.entries
        for key, instant_ns, (_, record) in zip(batch.keys, instants, batch.rows, strict=True):
            spans = entries.get(key, ())
            for place, (opener_ns, number, latest_ns, _) in enumerate(spans):
                if -within_ns < instant_ns - opener_ns < within_ns:
                    if instant_ns >= latest_ns:
                        latest = (opener_ns, number, instant_ns, record)
                        table.set(key, (*spans[:place], latest, *spans[place + 1 :]) if len(spans) > 1 else (latest,))
                    break
            else:
                table.set(key, (*spans, (instant_ns, self._heap.open(instant_ns, key), instant_ns, record)))

    def end(self, opened_max_ns: int | None, out: Operator) -> None:
        """See ``LastSpans``."""
        ended = self._heap.ended(opened_max_ns)
        if not ended:
            return
        records = [self._forget(number, key) for _, number, key in ended]
        times = [result_time_ns(opener_ns + self._within_ns) for opener_ns, _, _ in ended] if self._has_times else None
        out.rows(records, times)

    def _forget(self, number: int, key: Any) -> Any:
        """Forgets a span and returns its record."""
        table = self._table
        spans = table.entries[key]
        if len(spans) == 1:
            table.delete(key)
            return spans[0][3]
        table.set(key, tuple([span for span in spans if span[1] != number]))
        return next(span[3] for span in spans if span[1] == number)
