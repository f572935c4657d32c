"""Fuzz jobs written with the public API: the same self-describing rows as ``fuzz_chain``, through real operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from enum import IntEnum
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, cast

from clonos.api.graph import JobGraph
from clonos.api.stream import Stream
from clonos.api.windows import Tumbling
from clonos.core.log.call_outcomes import CallInDoubt
from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import Chain, Mirror
from clonos.core.values import decode_value, encode_rows, encode_value, register
from clonos.operators.connector_contract import Registration, WriterContext, WriterIdentity
from clonos.operators.state.state_descriptors import ListState, ValueState
from clonos.operators.windows.partial_step import PartialStep
from clonos_chaos.jobs.fuzz_chain import KEYS
from clonos_chaos.jobs.fuzz_jobs import next_of
from clonos_chaos.sim.external_systems import SimService
from clonos_chaos.sim.producers import SimProducer
from clonos_services import clock
from clonos_services import random as causal_random
from clonos_services.service import Service, service

Row = tuple[int, tuple[Any, ...]]


class Offsets:
    """Source of the rows ``(offset, ())``; a split is a range of offsets."""

    def __init__(self, records: int) -> None:
        self.records = records

    def splits(self, parallelism: int) -> list[bytes]:
        width = max(1, self.records // (parallelism * 2))
        return [encode_value((first, min(first + width, self.records))) for first in range(0, self.records, width)]

    def reader(self) -> OffsetsReader:
        return OffsetsReader()


class OffsetsReader:
    """Reader of a range of offsets."""

    def open(self, split: bytes, mark: bytes | None) -> None:
        bounds: Any = decode_value(split)
        self._next, self._end = bounds
        if mark is not None:
            self._next = cast(int, decode_value(mark))

    def read(self, records_max: int) -> list[Row] | None:
        found = [(offset, ()) for offset in range(self._next, min(self._end, self._next + records_max))]
        self._next += len(found)
        return found or None

    def mark(self) -> bytes:
        return encode_value(self._next)

    def close(self) -> None:
        pass


class Parts:
    """Transactional sink whose parts are the rows; the world commits them itself."""

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        pass

    def writer(self) -> FuzzPartsWriter:
        return FuzzPartsWriter()

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        raise AssertionError("the simulated world commits by itself")


class FuzzPartsWriter:
    """Writer that collects rows until the barrier."""

    def open(self, context: WriterContext) -> None:
        self._rows: list[Any] = []

    def write(self, rows: list[Any]) -> None:
        self._rows += rows

    def write_columns(self, batch: Any) -> None:
        raise AssertionError("rows only")

    def prepare(self, checkpoint: int) -> bytes | None:
        rows, self._rows = self._rows, []
        return encode_rows(rows) if rows else None

    def close(self) -> None:
        pass


class Immediate:
    """Marker of an immediate sink; the world's external system takes its output."""

    def immediate_writer(self) -> UnusedExternal:
        return UnusedExternal()


class UnusedExternal:
    """Placeholder that is never connected to: the simulated slot writes to the world's external system."""

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        raise AssertionError(identity)

    def write(self, first_number: int, rows: list[Any]) -> int:
        raise AssertionError(first_number)

    def close(self) -> None:
        pass


def drawn(stage: int, seen: int, draws: bool, reads_clock: bool, ask: Callable[[Any], int] | None, row: Row) -> Row:
    """Returns a row with what a stage has drawn for it in its lineage."""
    offset, lineage = row
    timestamp = clock.time_ns() if reads_clock else 0
    rng = causal_random.stream(f"stage {stage}").getrandbits(32) if draws else 0
    answer = ask((stage, offset)) if ask is not None else 0
    return offset, (*lineage, (stage, 0, seen, timestamp, rng, answer))


def stage_of_row(stage: int, rng: Random, ask: Callable[[Any], int] | None, row: Row) -> Row:
    """Returns the row as a stage without state leaves it, with what the stage has drawn."""
    offset, lineage = row
    came_from = lineage[-1][0] if lineage else 0  # a row may pass twice, on two paths
    return drawn(stage, offset * 8 + came_from, True, True, ask, row)


@register
class Parity(IntEnum):
    """Parity of a key, as a part of it."""

    EVEN = 0
    ODD = 1


class CountPerKey:
    """Process function that counts per key, and delays every third row by a timer."""

    seen = ValueState[int]("seen", default=0)
    held = ValueState[list[Row]]("held", default=[])

    def __init__(self, stage: int, delay_ms: int) -> None:
        self.stage, self.delay_ms = stage, delay_ms

    def process(self, row: Row, context: Any) -> None:
        seen = context.state(self.seen)
        seen.value += 1
        processed = drawn(self.stage, self.number(seen.value, context), True, True, None, row)
        if self.delay_ms and seen.value % 3 == 0:
            held = context.state(self.held)
            held.value = [*held.value, processed]
            context.set_timer(clock.time() + self.delay_ms / 1000)
        else:
            context.emit(processed)

    def number(self, seen: int, context: Any) -> int:
        """Returns the number of a row, which its lineage shows."""
        return seen

    def on_timer(self, timestamp: Any, context: Any) -> None:
        held = context.state(self.held)
        for row in held.value:
            context.emit(row)
        held.value = []


class CountRecentPerKey(CountPerKey):
    """The same, and the number of a row shows how many rows of its key came in the last milliseconds."""

    recent = ValueState[int]("recent", default=0, ttl="5ms")
    last = ListState[int]("last", ttl="20ms")

    def number(self, seen: int, context: Any) -> int:
        recent, last = context.state(self.recent), context.state(self.last)
        recent.value += 1
        last.append(seen)
        return int(seen * 100 + recent.value % 10 * 10 + len(last) % 10)


class ApiJob:
    """Fuzz job made with the API, with the interface of ``FuzzJob`` that ``World`` needs."""

    counts_rows: ClassVar[bool] = True
    """Whether every offset comes out ``copies`` times at each sink; otherwise ``complaints_of_rows`` counts."""

    def __init__(self, name: str, rng: Random, records: int, sharing_depth: int | None) -> None:
        self.name = name
        self.service = SimService(Random(rng.getrandbits(64)))
        self.records = records
        self.copies = 1
        self.ordered: list[str] = []  # keys of calls with an effect
        self.producers: dict[TaskId, SimProducer] = {}
        self.chains_open = 0  # not counted: the operators' own tests check their resources
        graph = JobGraph("fuzz-api")
        self._build(graph, rng)
        options = Options(sharing_depth=sharing_depth)
        self._image = graph.compile(options, parallelism=rng.choice((1, 2)))
        self.plan = self._image.plan

    def _build(self, graph: JobGraph, rng: Random) -> None:
        ask = service(name="ask")(self._asked) if rng.random() < 0.6 else None
        order = self._drawn_order(rng)
        rows: Stream[Row] = graph.source(Offsets(self.records), parallelism=rng.choice((1, 2)))
        if rng.random() < 0.5:
            rows = rows.rebalance()
        rows = rows.map(partial(stage_of_row, 1, rng, ask))
        key = KEY_FUNCTIONS[self.records % len(KEY_FUNCTIONS)]  # not drawn, so that a seed still gives its job
        counts = CountRecentPerKey if self.records % 3 == 0 else CountPerKey  # not drawn, too
        counted: Stream[Row] = rows.key_by(key).process(counts(2, rng.choice((0, 0, 15))))
        if rng.random() < 0.5:
            counted = rows.map(partial(stage_of_row, 3, rng, None)).union(counted)
            self.copies = 2
        if rng.random() < 0.5:
            windowed = counted.key_by(key).window(Tumbling(rng.choice((0.02, 0.1)))).aggregate(list, _append)
            counted = windowed.flat_map(_value)
        last = counted.map(partial(stage_of_row, 4, rng, order or ask), effects=order is not None)
        kind = rng.choice(("transactional", "immediate", "both"))
        if kind != "transactional":
            last.sink(Immediate())
        if kind != "immediate":
            last.sink(Parts())

    @property
    def has_parts(self) -> bool:
        """Whether a step gets parts of the records of its keys (``split_hot_keys``)."""
        makes = [node.make for vertex in self._image.vertices for node in vertex.nodes]
        kinds = [make.func for make in makes if isinstance(make, partial)]
        return any(isinstance(kind, type) and issubclass(kind, PartialStep) for kind in kinds)

    def _drawn_order(self, rng: Random) -> Callable[[Any], int] | None:
        """Draws a call with an effect that is never repeated in doubt: it is left, or looked up."""
        kind = int(1e9 * next_of(rng)) % 6
        if kind > 1:
            return None
        order: Service[..., int] = service(name="order", effect=True, reconcile=self._found if kind else None)(
            self._ordered
        )
        return partial(_or_none, order)

    def _asked(self, question: Any, idempotency_key: str = "") -> int:
        return self.service.ask(question, idempotency_key)

    def _ordered(self, question: Any, idempotency_key: str = "") -> int:
        self.ordered.append(idempotency_key)
        return self.service.ask(question, idempotency_key)

    def _found(self, key: str, question: Any) -> int:
        return self.service.reconcile(key)

    def expected(self) -> Sequence[int]:
        """Returns the offsets that must come out, each ``copies`` times."""
        return range(self.records)

    def complaints(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """Returns orders made twice, unless a task died with its keeper or looked a call up too early."""
        if exposed:
            return []
        counted = Counter(self.ordered)
        twice = sorted(key for key, times in counted.items() if times > 1 and key not in self.service.never_happened)
        return [f"the order {key} was made {counted[key]} times, though it is not in doubt" for key in twice]

    def complaints_of_rows(self, rows: Iterable[Row]) -> list[str]:
        """Returns how visible rows differ from those of a twin, if the job has one."""
        return []

    def new_chain(self, vertex: int) -> Chain:
        """Makes a chain for one incarnation."""
        return self._image.new_chain(vertex)

    def new_mirror(self, vertex: int) -> Mirror:
        """Makes an empty mirror of its state."""
        return self._image.new_mirror(vertex)


def _or_none(order: Callable[[Any], int], question: Any) -> int:
    """Places an order; returns 0 for an order in doubt."""
    try:
        return order(question)
    except CallInDoubt:
        return 0


def _key(row: Row) -> int:
    return row[0] % KEYS


def _instant_key(row: Row) -> datetime:
    """Returns an instant, in a zone that differs between rows with the same key."""
    return datetime.fromtimestamp(1_700_000_000 + _key(row), timezone(timedelta(hours=row[0] % 3)))


def _member_key(row: Row) -> tuple[Parity, int]:
    return Parity(_key(row) % 2), _key(row)


KEY_FUNCTIONS: Final[tuple[Callable[[Row], Any], ...]] = (_key, _instant_key, _member_key)


def _append(rows: list[Row], row: Row) -> None:
    rows.append(row)


def _value(window: Any) -> list[Row]:
    return list(window.value)
