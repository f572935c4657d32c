"""Checks for idleness in a task: input that waits is not silence, whatever holds the task back, and a replay agrees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

import pytest

from clonos import Context, Timestamps
from clonos.api.graph import JobGraph
from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.log import determinants as d
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import CheckpointId, Incarnation
from clonos.core.model.options import Options
from clonos.core.model.watermark import IDLE, decode_watermark
from clonos.core.ports.task_port import Activation, BudgetChanged, Command, Delivered, Triggered
from clonos.core.values import encode_rows
from clonos.core.values.elements import decode_records
from clonos_chaos.user.harness_life import HarnessContext, Life
from tests.harnesses.task_harness import tags_of
from tests.unit.operators.driver import START_NS, Given, Outbox

SECOND_NS = 10**9
STEP_VERTEX = 1


class HeldLife(Life):
    """A life whose receivers may hold it back."""

    room_bytes = UNLIMITED

    def budget_bytes(self) -> int:
        return self.room_bytes


class Driven:
    """One task of a job, given elements and time by hand; what it has sent stands in ``sent``."""

    def __init__(self, vertex: int, describe: Callable[[JobGraph], Any], log: bytes = b"") -> None:
        graph = JobGraph("job")
        describe(graph).rebalance().map(str, name="behind").sink(Outbox())
        image = graph.compile(Options(), parallelism=1)
        self.task = image.plan.tasks[image.plan.first_task[vertex]]
        self.channels = [channel.id for channel in image.plan.inputs[self.task]]
        self.around = HarnessContext(
            image.plan, self.task, Options(), Random(1), START_NS, lambda: image.new_chain(vertex), deque()
        )
        activation = Activation(Incarnation(1 + bool(log)), None, None, log, 0, 1, False, "job")
        self.life = HeldLife(self.around, activation, is_first=True)
        self.life.resume()

    @property
    def sent(self) -> list[Any]:
        found: list[Any] = []
        for emission in self.life.emissions:
            for output in emission.outputs:
                if output.kind is ElementKind.ROWS:
                    found += decode_records(output.kind, output.payload)
                elif output.kind is ElementKind.WATERMARK:
                    found.append(decode_watermark(output.payload))
        return found

    @property
    def log(self) -> bytes:
        return b"".join(emission.log for emission in self.life.emissions)

    def give(self, command: Command) -> None:
        self.around.commands.append(command)
        self.life.resume()
        if self.life.error is not None:
            raise self.life.error

    def rows(self, *rows: Any, channel: int = 0) -> None:
        self.give(
            Delivered(self.channels[channel], ElementKind.ROWS, len(rows), 0, CheckpointId(0), encode_rows(list(rows)))
        )

    def wait(self, seconds: float) -> None:
        self.around.now_ns += int(seconds * SECOND_NS)
        self.life.resume()

    def hold(self) -> None:
        self.life.room_bytes = 0
        self.give(BudgetChanged())

    def let_go(self) -> None:
        self.life.room_bytes = UNLIMITED
        self.give(BudgetChanged())

    def close(self) -> None:
        self.life.stop()


def timestamps() -> Timestamps:
    return Timestamps(lambda second: float(second), idle_after="1s", future_max=None)


def after_an_exchange(graph: JobGraph) -> Any:
    return graph.source(Given([]), parallelism=2).rebalance().with_timestamps(timestamps())


class Ticks:
    """Sets a timer for 1.5 s after each record, in the same chain."""

    def process(self, second: int, context: Context[Any, Any]) -> None:
        context.set_timer(START_NS / SECOND_NS + second)
        context.emit(second)

    def on_timer(self, timestamp: datetime, context: Context[Any, Any]) -> None:
        context.emit("tick")


def before_a_timer(graph: JobGraph) -> Any:
    return after_an_exchange(graph).process(Ticks)


@pytest.mark.parametrize("describe", [after_an_exchange, before_a_timer])
def test_a_task_that_its_receivers_hold_back_does_not_take_its_input_for_idle(
    describe: Callable[[JobGraph], Any],
) -> None:
    driven = Driven(STEP_VERTEX, describe)
    driven.rows(2)
    driven.wait(1)  # the check has seen the record; the next one is due in a second
    driven.hold()
    driven.rows(3)
    driven.wait(3)
    driven.let_go()
    assert IDLE not in driven.sent
    assert [sent for sent in driven.sent if sent != "tick"] == [2, 2 * SECOND_NS, 3, 3 * SECOND_NS]
    driven.wait(1)
    assert driven.sent[-1] is IDLE
    driven.close()


def test_input_after_a_barrier_that_another_input_lacks_is_not_idle() -> None:
    driven = Driven(STEP_VERTEX, after_an_exchange)
    driven.rows(2)
    driven.wait(1)
    driven.give(Delivered(driven.channels[0], ElementKind.BARRIER, 1, 0, CheckpointId(1), b""))
    driven.rows(3)
    driven.wait(3)
    assert driven.sent == [2, 2 * SECOND_NS]
    driven.give(Delivered(driven.channels[1], ElementKind.BARRIER, 1, 0, CheckpointId(1), b""))
    assert driven.sent == [2, 2 * SECOND_NS, 3, 3 * SECOND_NS]
    driven.close()


def test_a_replay_repeats_the_checks_though_its_input_waits_otherwise() -> None:
    first = Driven(STEP_VERTEX, before_a_timer)
    first.rows(2)
    first.wait(1)
    first.hold()
    first.rows(3)
    first.wait(3)
    first.let_go()
    first.wait(1)
    first.wait(1)
    first.rows(4)
    assert first.sent.count(IDLE) == 1
    assert tags_of(first.log).count(d.TIMER) > 4
    again = Driven(STEP_VERTEX, before_a_timer, first.log)
    again.rows(2, 3, 4)  # all of it is there from the beginning
    assert again.log == b""
    assert again.sent == first.sent
    first.close()
    again.close()


class Later:
    """A source whose records the test gives."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def splits(self, parallelism: int) -> list[bytes]:
        return [b"only"]

    def reader(self) -> Any:
        return LaterReader(self.records)


class LaterReader:
    """Reads what there is."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records
        self.place = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        self.place = int(mark or b"0")

    def read(self, records_max: int) -> list[Any] | None:
        chunk = self.records[self.place : self.place + records_max]
        self.place += len(chunk)
        return chunk

    def mark(self) -> bytes:
        return str(self.place).encode()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("at_source", [True, False])
def test_a_source_that_its_receivers_hold_back_is_not_idle(at_source: bool) -> None:
    source = Later()

    def describe(graph: JobGraph) -> Any:
        if at_source:
            return graph.source(source, parallelism=1, timestamps=timestamps()).process(Ticks)
        return graph.source(source, parallelism=1).with_timestamps(timestamps()).process(Ticks)

    driven = Driven(0, describe)
    source.records.append(2)
    driven.wait(0.5)
    driven.wait(1)
    assert driven.sent == [2, 2 * SECOND_NS]
    driven.hold()
    source.records.append(3)
    driven.wait(3)
    driven.let_go()
    driven.wait(0.1)
    assert IDLE not in driven.sent
    assert [sent for sent in driven.sent if sent != "tick"] == [2, 2 * SECOND_NS, 3, 3 * SECOND_NS]
    driven.wait(1)
    driven.wait(1)
    driven.wait(1)
    assert driven.sent[-1] is IDLE
    driven.give(Triggered(CheckpointId(1), False))
    driven.close()
