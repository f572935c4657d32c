"""Fuzz jobs with calls at once (``map_async``, ``stateful_map_async``, ``enrich``, ``enrich_batch``).

A record has the answer given to it.
"""

from __future__ import annotations

import os
import random
import secrets
import time
import uuid
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, Final

from clonos.api.graph import JobGraph
from clonos.api.keyed_stream import KeyedStream
from clonos.api.stream import Stream
from clonos.operators.steps.awaited_events import Cancel, Event
from clonos_chaos.jobs.api_jobs import ApiJob, CountPerKey, Immediate, Offsets, Parts, Row
from clonos_chaos.jobs.fuzz_chain import KEYS
from clonos_services import clock
from clonos_services.awaiting import AwaitTimeout, CallCancelled, await_event
from clonos_services.calls import recorded_call


class AsideJob(ApiJob):
    """Job with concurrent calls, ordered or not, keyed state after them, and concurrent calls again."""

    def _build(self, graph: JobGraph, rng: Random) -> None:
        rows: Stream[Row] = graph.source(Offsets(self.records), parallelism=rng.choice((1, 2)))
        if rng.random() < 0.5:
            rows = rows.rebalance()
        for stage in (1, 3):
            kinds = (
                *(self._enriched, self._enriched_in_batches, self._mapped, self._mapped_in_parts),
                *(self._mapped_in_turn, self._mapped_in_turn_in_parts, self._stamped, self._stamped_in_parts),
            )
            answered = rng.choice(kinds)(rows, stage, rng)
            rows = answered.key_by(_key).process(CountPerKey(stage + 1, rng.choice((0, 15))))
        if rng.random() < 0.5:
            rows.sink(Immediate())
        else:
            rows.sink(Parts())

    def _mapped(self, rows: Stream[Row], stage: int, rng: Random) -> Stream[Row]:
        return rows.map_async(
            partial(self._answered, stage),
            capacity=rng.choice((1, 3, 16)),
            ordered=rng.random() < 0.5,
            parallelism=rng.choice((1, 2)),
        )

    def _mapped_in_parts(self, rows: Stream[Row], stage: int, rng: Random) -> Stream[Row]:
        return rows.map_async(
            partial(self._answered_in_parts, stage),
            capacity=rng.choice((1, 3, 16)),
            ordered=rng.random() < 0.5,
            retries=rng.choice((0, 2)),
            parallelism=rng.choice((1, 2)),
            log_calls=True,
            effects=True,
        )

    def _mapped_in_turn(self, rows: Stream[Row], stage: int, rng: Random) -> Stream[Row]:
        return rows.key_by(_key).stateful_map_async(
            partial(self._answered_in_turn, stage),
            capacity=rng.choice((1, 2, 16)),
            retries=rng.choice((0, 2)),
            parallelism=rng.choice((1, 2)),
        )

    def _mapped_in_turn_in_parts(self, rows: Stream[Row], stage: int, rng: Random) -> Stream[Row]:
        return rows.key_by(_key).stateful_map_async(
            partial(self._answered_in_turn_in_parts, stage),
            capacity=rng.choice((1, 2, 16)),
            retries=rng.choice((0, 2)),
            parallelism=rng.choice((1, 2)),
            log_calls=True,
            effects=True,
        )

    def _stamped(self, rows: Stream[Row], stage: int, rng: Random) -> Stream[Row]:
        return rows.map(partial(_stamped, stage), intercept=True, parallelism=rng.choice((1, 2)))

    def _stamped_in_parts(self, rows: Stream[Row], stage: int, rng: Random) -> Stream[Row]:
        return rows.map_async(
            partial(self._stamped_between_calls, stage),
            capacity=rng.choice((1, 3, 16)),
            ordered=rng.random() < 0.5,
            parallelism=rng.choice((1, 2)),
            log_calls=True,
            effects=True,
            intercept=True,
        )

    def _stamped_between_calls(self, stage: int, row: Row) -> Row:
        offset, lineage = self._answered_in_parts(stage, row)
        answer = lineage[-1][-1]
        drawn = int(uuid.uuid4().hex[:8], 16) + secrets.randbelow(1 << 32) + int.from_bytes(os.urandom(4))
        return offset, (*lineage[:-1], (stage, 0, offset * 8, 0, drawn, answer))

    def _enriched(self, rows: Stream[Row], stage: int, rng: Random) -> Stream[Row]:
        return rows.enrich(
            partial(self._looked_up, stage),
            on=_offset,
            select=partial(_with_answer, stage),
            cache=rng.choice((None, 1, 8, (4, "20ms"))),
            capacity=rng.choice((1, 3, 16)),
            parallelism=rng.choice((1, 2)),
        )

    def _enriched_in_batches(self, rows: Stream[Row], stage: int, rng: Random) -> Stream[Row]:
        return rows.enrich_batch(
            partial(self._all_looked_up, stage),
            on=_offset,
            keys=rng.choice((1, 3, 10)),
            within=rng.choice(("1ms", "20ms")),
            select=partial(_with_answer, stage),
            cache=rng.choice((None, 1, 8, (4, "20ms"))),
            capacity=rng.choice((1, 3)),
            parallelism=rng.choice((1, 2)),
        )

    def _all_looked_up(self, stage: int, offsets: list[int], idempotency_key: str) -> dict[int, int]:
        return {offset: self._looked_up(stage, offset, f"{idempotency_key} {offset}") for offset in offsets}

    def _looked_up(self, stage: int, offset: int, idempotency_key: str) -> int:
        return self.service.ask((stage, offset), idempotency_key)

    def _answered_in_parts(self, stage: int, row: Row) -> Row:
        """Asks whether to pay, pays, and asks for the answer: three calls, each of which the log has on its own."""
        question = (stage, row[0])
        first = self._part("before", (*question, "before"))
        paid = self._part("pay", (*question, "pay", first), is_effect=True)
        assert paid == self._part("read", (*question, "read", paid), answer=paid), "a call has the answer of another"
        return _with_answer(stage, row, self._part("after", question))

    def _part(self, name: str, question: object, *, is_effect: bool = False, answer: int | None = None) -> int:
        def perform(key: str, *, is_in_doubt: bool = False) -> int:
            if answer is not None:
                return answer
            return self.service.ask(question, key, is_effect=is_effect, is_in_doubt=is_in_doubt)

        again = partial(perform, is_in_doubt=True)
        found = recorded_call(name, lambda: question, perform, effect=is_effect, in_doubt=again)
        assert isinstance(found, int), found
        return found

    def _answered(self, stage: int, row: Row, idempotency_key: str) -> Row:
        return _with_answer(stage, row, self._looked_up(stage, row[0], idempotency_key))

    def _answered_in_turn(
        self, stage: int, key: int, seen: int | None, row: Row, idempotency_key: str
    ) -> tuple[int, Row]:
        return _in_turn(stage, seen, row, self._looked_up(stage, row[0], idempotency_key))

    def _answered_in_turn_in_parts(self, stage: int, key: int, seen: int | None, row: Row) -> tuple[int, Row]:
        _, lineage = self._answered_in_parts(stage, row)
        return _in_turn(stage, seen, row, lineage[-1][-1])


class AwaitingJob(AsideJob):
    """Job whose calls ask, await an event, and ask again. Some are cancelled.

    There are as many events of each key as calls, or fewer if all calls wait for a limited time.
    """

    timeout_ms: int | None

    def _build(self, graph: JobGraph, rng: Random) -> None:
        width = rng.choice((1, 2))
        self.timeout_ms = rng.choice((None, 2, 30))
        rows: Stream[Any] = graph.source(Offsets(self.records), parallelism=width)
        events: Stream[Any] = graph.source(Offsets(self.records), parallelism=rng.choice((1, 2)))
        if self.timeout_ms is not None:
            events = events.filter(_has_event)
        keyed: KeyedStream[int, Any] = rows.key_by(_key).union(events.map(_event).key_by(_key_of_event))
        if rng.random() < 0.5:
            cancels: Stream[Any] = graph.source(Offsets(self.records // 2), parallelism=1)
            keyed = keyed.union(cancels.map(_cancel).key_by(_key_of_event))
        answered = keyed.stateful_map_async(
            self._answered_after_an_event,
            capacity=rng.choice((1, 2, 16)),
            retries=rng.choice((0, 2)),
            parallelism=rng.choice((1, 2)),
            log_calls=True,
            effects=True,
        )
        counted = answered.key_by(_key).process(CountPerKey(2, rng.choice((0, 15))))
        counted.sink(Immediate() if rng.random() < 0.5 else Parts())

    def _answered_after_an_event(self, key: int, seen: int | None, row: Row) -> tuple[int, Row]:
        try:
            return self._answered_unless_cancelled(key, seen, row)
        except CallCancelled:
            return self._answered_as(CAME_CANCEL, key, seen, row)

    def _answered_unless_cancelled(self, key: int, seen: int | None, row: Row) -> tuple[int, Row]:
        self._part("before", (1, row[0], "before"))
        return self._answered_as(self._came(key), key, seen, row)

    def _came(self, key: int) -> int:
        """Awaits the event; returns its value, or that nothing has come in time."""
        if self.timeout_ms is None:
            came: int = await_event(GO)
        else:
            began_ns = clock.time_ns(exact=True)
            try:
                came = await_event(GO, timeout=f"{self.timeout_ms}ms")
            except AwaitTimeout as late:
                waited_ns = clock.time_ns(exact=True) - began_ns
                assert late.has_ended or waited_ns >= self.timeout_ms * 1_000_000, "its time was up too early"
                return CAME_NOTHING
        assert came % KEYS == key, "the call has the event of another key"
        return came

    def _answered_as(self, came: int, key: int, seen: int | None, row: Row) -> tuple[int, Row]:
        offset, lineage = row
        now, (_, after) = self._answered_in_turn_in_parts(1, key, seen, row)
        (stage, task, number, _, _, answer) = after[-1]
        return now, (offset, (*lineage, (stage, task, number, came, 0, answer)))


GO: Final = "go"
CAME_NOTHING, CAME_CANCEL = -1, -2
"""What a row shows in place of an event."""


def _has_event(row: Row) -> bool:
    return row[0] // KEYS % 3 != 0


def _event(row: Row) -> Event:
    return Event(GO, row[0])


def _cancel(row: Row) -> Cancel:
    return Cancel(row[0])


def _key_of_event(event: Event | Cancel) -> int:
    key: int = event.value % KEYS
    return key


def _key(row: Row) -> int:
    return row[0] % KEYS


def _stamped(stage: int, row: Row) -> Row:
    """Returns the row with the clock and random numbers of Python, which the step intercepts."""
    offset, lineage = row
    now = time.time_ns() + round(datetime.now(UTC).timestamp())
    drawn = random.getrandbits(32) + int(uuid.uuid4().hex[:8], 16) + secrets.randbelow(1 << 32)
    return offset, (*lineage, (stage, 0, offset * 8, now, drawn + int.from_bytes(os.urandom(4)), 0))


def _in_turn(stage: int, seen: int | None, row: Row, answer: int) -> tuple[int, Row]:
    """Returns how many rows of the key have come, which is its state, and the row with that number."""
    offset, lineage = row
    now = (seen or 0) + 1
    return now, (offset, (*lineage, (stage, 0, now, 0, 0, answer)))


def _offset(row: Row) -> int:
    return row[0]


def _with_answer(stage: int, row: Row, answer: int) -> Row:
    offset, lineage = row
    return offset, (*lineage, (stage, 0, offset * 8, 0, 0, answer))
