"""Buffers of both sides of a join by time whose records are Python objects.

In memory are agendas of what ends, since nothing later matches it: the records that leave then unless something has
matched them, whose numbers are in a table too, and the keys of each batch whose records are forgotten.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import compress
from typing import Any, Final

from clonos.operators.joins.match_rules import How, MatchRule
from clonos.operators.kinds.object_records import Agenda, KeyedRecords, Record
from clonos.operators.kinds.object_results import ObjectResults
from clonos.operators.kinds.object_side import ObjectSide
from clonos.operators.state.keyed_state import Table

NONE: Final[list[Record]] = []
"""Of no key."""

STRETCHES: Final = 8
"""Parts of the time in which a record may have partners. Records of one part are forgotten together."""


class ObjectBuffers:
    """See ``Buffers``."""

    def __init__(
        self,
        results: ObjectResults,
        tables: tuple[Table, Table],
        unmatched: Table,
        rule: MatchRule,
        how: How,
        has_times: bool,
    ) -> None:
        self._results, self._rule, self._how, self._has_times = results, rule, how, has_times
        self._records = tuple(map(KeyedRecords, tables))  # of the left and of the right side
        self._unmatched = unmatched
        self._keeps = how.keeps(True), how.keeps(False)
        self._leaving, self._ends = Agenda([]), Agenda([])
        self._stretch_ns = rule.shared_ns or rule.span_ns // STRETCHES + 1
        for is_left, records in zip((True, False), self._records, strict=True):
            keys = [stored for stored, found in records.of_key.items() for _ in found]
            self._await_end(is_left, keys, [record for found in records.of_key.values() for record in found])

    @property
    def first_end_ns(self) -> int | None:
        """See ``Buffers``."""
        firsts = [each.first_ns for each in (self._leaving, self._ends)]
        return min([first_ns for first_ns in firsts if first_ns is not None], default=None)

    # --- matching

    def pair(self, is_left: bool, batch: ObjectSide, needed_ns: int | None) -> None:
        """See ``Buffers``."""
        keeps, keeps_other = self._keeps[not is_left], self._keeps[is_left]
        pairs: list[Any] = []
        times: list[int] = []
        gone = batch.gone(needed_ns)
        leaves, is_alone = set(gone), list[bool]()
        rows = zip(self._found(is_left, batch), batch.rows, batch.instants, strict=True)
        for place, (found, row, at_ns) in enumerate(rows):
            if found:
                pairs += [(row, other[2]) if is_left else (other[2], row) for other in found]
                times += [at_ns if at_ns > other[0] else other[0] for other in found]
                if keeps_other:
                    self._note_matched(found)
            if not keeps:
                continue
            if place not in leaves:
                is_alone.append(not found)
            elif not found:
                pairs.append((row, None) if is_left else (None, row))
                times.append(at_ns)
        self._give(pairs, times)
        self._buffer(is_left, batch.split(gone)[0] if gone else batch, is_alone)

    def _note_matched(self, found: list[Record]) -> None:
        entries = self._unmatched.entries
        for _, number, _, _ in found:
            if number in entries:
                self._unmatched.delete(number)

    def parted(self, batch: ObjectSide) -> tuple[ObjectSide, ObjectSide]:
        """See ``Buffers``."""
        return batch.split([place for place, found in enumerate(self._found(True, batch)) if not found])

    def first_of_windows(self, batch: ObjectSide) -> ObjectSide:
        """See ``Buffers``."""
        firsts: dict[tuple[Any, int], int] = {}
        of_key = self._records[1].of_key
        partners = self._rule.partners_of(False, batch.instants)
        for place, (stored, (first_ns, last_ns)) in enumerate(zip(batch.stored, partners, strict=True)):
            if (records := of_key.get(stored)) is None or not _between(records, first_ns, last_ns):
                firsts.setdefault((stored, first_ns), place)
        return batch if len(firsts) == len(batch) else batch.at(list(firsts.values()))

    def decide(self, batch: ObjectSide, emits: bool) -> None:
        """See ``Buffers``."""
        left, decided = self._records[0], list[Record]()
        partners = self._rule.partners_of(False, batch.instants)
        for stored, (first_ns, last_ns) in zip(batch.stored, partners, strict=True):
            records = left.of_key.get(stored)
            if records is not None and (found := _between(records, first_ns, last_ns)):
                decided += found
                left.take(stored, bisect_left(records, found[0][:2]), len(found))
        left.delete([number for _, number, _, _ in decided])
        if emits:
            self._pass_on_retained(decided)

    def pass_on(self, batch: ObjectSide) -> None:
        """See ``Buffers``."""
        self._results.pass_on(batch.rows, batch.times if self._has_times else None)

    def _pass_on_retained(self, lefts: list[Record]) -> None:
        if lefts:
            times = [at_ns for at_ns, _, _, _ in lefts] if self._has_times else None
            self._results.pass_on(self._results.copied_rows([row for _, _, row, _ in lefts]), times)

    def add(self, is_left: bool, batch: ObjectSide) -> None:
        """See ``Buffers``."""
        self._buffer(is_left, batch, [])

    def _buffer(self, is_left: bool, batch: ObjectSide, is_alone: list[bool]) -> None:
        """Buffers records with keys. ``is_alone`` says which of them leave if nothing matches them."""
        own, other = self._records[not is_left], self._records[is_left]
        own.next_number = max(own.next_number, other.next_number)
        records = own.append(batch, without_rows=not (is_left or self._how.gives_pairs))
        insert = own.insert
        for stored, record in zip(batch.stored, records, strict=True):
            insert(stored, record)
        if self._keeps[not is_left] and self._how.gives_pairs:
            self._unmatched.update(dict.fromkeys([record[1] for record in compress(records, is_alone)]))
        self._await_end(is_left, batch.stored, records)

    def _found(self, is_left: bool, batch: ObjectSide) -> list[list[Record]]:
        """Returns the records of the other side that match each record of a batch, by timestamp and arrival."""
        partners = self._rule.partners_of(is_left, batch.instants)
        found = map(self._records[is_left].of_key.get, batch.stored)
        return [
            NONE if records is None else _between(records, *pair) for records, pair in zip(found, partners, strict=True)
        ]

    # --- forgetting

    def _await_end(self, is_left: bool, keys: list[Any], records: list[Record]) -> None:
        """Notes when records leave, if nothing has matched them, and when those of the keys are forgotten."""
        if not records:
            return
        partners = self._rule.partners_of(is_left, [record[0] for record in records])
        if self._keeps[not is_left]:
            entries = self._unmatched.entries if self._how.gives_pairs else None
            self._leaving.add(
                [
                    (last_ns, record[1], is_left, stored, record)
                    for (_, last_ns), stored, record in zip(partners, keys, records, strict=True)
                    if entries is None or record[1] in entries
                ]
            )
        ends: dict[int, tuple[int, list[Any]]] = {}
        for stored, (_, last_ns) in zip(keys, partners, strict=True):
            stretch = last_ns // self._stretch_ns
            end_ns, found = ends.get(stretch) or (last_ns, [])
            found.append(stored)
            ends[stretch] = max(end_ns, last_ns), found
        self._ends.add([(end_ns, records[0][1], is_left, found) for end_ns, found in ends.values()])

    def forget(self, needed_ns: tuple[int, int] | None, reached_ns: int | None) -> None:
        """See ``Buffers``."""
        leaving = [each for each in self._leaving.take(reached_ns) if self._leaves(each[1])]
        if self._how.gives_pairs:
            pairs = [(record[2], None) if is_left else (None, record[2]) for _, _, is_left, _, record in leaving]
            self._give(pairs, [record[0] for *_, record in leaving])
        else:
            self._pass_on_retained([record for *_, record in leaving])
            for *_, stored, record in leaving:
                self._records[0].take(stored, bisect_left(self._records[0].of_key[stored], record[:2]), 1)
            self._records[0].delete([record[1] for *_, record in leaving])
        for _, _, is_left, keys in self._ends.take(reached_ns):
            place = not is_left
            self._records[place].forget(keys, None if needed_ns is None else needed_ns[place])

    def _leaves(self, number: int) -> bool:
        """Returns whether nothing has matched a record."""
        if not self._how.gives_pairs:
            return number in self._records[0]
        if number not in self._unmatched.entries:
            return False
        self._unmatched.delete(number)
        return True

    def _give(self, pairs: list[Any], times: list[int]) -> None:
        if pairs:
            self._results.give(self._results.copied_pairs(pairs), times if self._has_times else None)


def _between(records: list[Record], first_ns: int, last_ns: int) -> list[Record]:
    """Returns those of the records of a key with timestamps from ``first_ns`` to ``last_ns``."""
    earliest_ns, latest_ns = records[0][0], records[-1][0]
    if first_ns <= earliest_ns and latest_ns <= last_ns:
        return records
    if latest_ns < first_ns or last_ns < earliest_ns:
        return NONE
    return records[bisect_left(records, (first_ns,)) : bisect_left(records, (last_ns + 1,))]
