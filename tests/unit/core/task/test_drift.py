"""A source that is too far ahead of another one (protocol 2.2): it reads nothing, and everything else goes on."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from clonos.core.log import determinants as d
from clonos.core.model.ids import CheckpointId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Plan
from clonos.core.model.watermark import END_OF_TIME_NS, INSTANT_NS_MIN
from clonos.core.ports.task_port import Command, ReadLimit, TaskEmission, TaskStopped, Triggered
from tests.harnesses.recording_chain import RecordingChain, nothing
from tests.harnesses.task_harness import Job, ScriptedTask, Start, tags_of
from tests.unit.core.task.test_task_replay import READER

RECORDS = 6
POLLS = 20
"""Waits of a source with nothing to read, before the next command comes."""


class Paced(RecordingChain):
    """Source whose record k takes its watermark to k + 1."""

    is_idle = False

    def __init__(self, rng: Random) -> None:
        super().__init__((nothing,), splits={0: list(range(RECORDS))}, poll_rng=rng)
        self.held_back = 0

    def reached_ns(self) -> int:
        return END_OF_TIME_NS if self.is_idle else self.offsets[0] or INSTANT_NS_MIN

    def hold_back(self) -> None:
        self.held_back += 1


class Idle(Paced):
    """Source that is idle, whatever it has read."""

    is_idle = True


class Commanded(ScriptedTask):
    """A source that is given commands one by one, each when it has long read nothing."""

    def __init__(
        self, *commands: Command, kind: type[Paced] = Paced, start: Start | None = None, drift: int = 1
    ) -> None:
        options = Options(step_records_first=1, step_records_max=1, watermark_drift_max_ns=drift)
        self.commands = list(commands)
        self.waits = 0
        self.reads: list[int] = []
        """Records that were read before each command."""
        self.reports: list[int | None] = []
        super().__init__(Job(timed_plan(), TaskId(0), kind, options=options), 0, start)

    @property
    def chain(self) -> Paced:
        chain = self.task.chain
        assert isinstance(chain, Paced)
        return chain

    def receive(self, until_ns: int | None) -> Command | None:
        if until_ns == 0:
            return None
        self.waits += 1
        if until_ns is not None and self.waits < POLLS:
            return None
        self.waits = 0
        self.reads.append(self.chain.offsets[0])
        if not self.commands:
            raise TaskStopped
        return self.commands.pop(0)

    def emit(self, emission: TaskEmission) -> None:
        self.reports.append(emission.reached_ns)
        super().emit(emission)


def timed_plan() -> Plan:
    """The source and another one, of which the task knows nothing but that there is one."""
    source, spread = READER.vertices
    timed = replace(source, is_timed=True)
    return replace(READER, vertices=(timed, spread, replace(timed, name="other")))


def free() -> Commanded:
    """Makes a source without a limit."""
    life = Commanded()
    life.task.take(ReadLimit(END_OF_TIME_NS))
    return life


def read_to(watermark_ns: int, *commands: Command) -> Commanded:
    """Runs a source that had a limit from its start."""
    life = Commanded(*commands)
    life.task.take(ReadLimit(watermark_ns))
    life.run()
    return life


def test_a_source_reads_up_to_the_first_watermark_above_the_limit() -> None:
    assert read_to(2).reads == [3]
    assert read_to(2).chain.held_back > 1


def test_a_source_reads_on_when_the_limit_rises() -> None:
    assert read_to(2, ReadLimit(4), ReadLimit(END_OF_TIME_NS)).reads == [3, 5, RECORDS]


def test_a_source_waits_for_its_first_limit_with_the_option_only() -> None:
    for drift, count in ((1, 1), (0, RECORDS)):
        life = Commanded(drift=drift)
        life.run()
        assert life.reads == [count]


def test_a_source_that_waits_takes_barriers_and_ends_at_a_trigger() -> None:
    life = read_to(0, Triggered(CheckpointId(1), False), Triggered(CheckpointId(2), False, then_end=True))
    assert life.reads[:2] == [1, 1]
    assert [snapshot.checkpoint for snapshot in life.snapshots] == [1, 2, 3]
    assert [snapshot.final for snapshot in life.snapshots] == [False, False, True]


def test_that_a_source_waits_is_in_no_log_and_its_replay_does_not_wait() -> None:
    life = read_to(2, ReadLimit(4))
    unlimited = free()
    unlimited.run()
    assert unlimited.log.startswith(life.log)
    assert set(tags_of(life.log)) == {d.READ}
    again = Commanded(start=Start(life.log))
    again.task.take(ReadLimit(0))
    again.run()
    assert again.reads == [5]


def test_a_source_that_is_idle_or_has_no_watermark_reads_whatever_the_limit_is() -> None:
    idle = Commanded(kind=Idle)
    idle.task.take(ReadLimit(INSTANT_NS_MIN))
    idle.run()
    assert idle.reads == [RECORDS]
    assert read_to(INSTANT_NS_MIN).reads == [1]


@pytest.mark.parametrize(("drift", "first"), [(1, [INSTANT_NS_MIN, 1, 2]), (0, [1, 2, 3])])
def test_a_source_reports_when_it_goes_live_with_the_option_and_with_each_step(drift: int, first: list[int]) -> None:
    life = Commanded(drift=drift)
    life.task.take(ReadLimit(END_OF_TIME_NS))
    life.run()
    assert life.reports[:3] == first


def test_a_restored_source_that_finds_nothing_to_read_has_reported() -> None:
    life = Commanded(Triggered(CheckpointId(1), False))
    life.task.take(ReadLimit(2))
    life.run()
    again = Commanded(start=Start(snapshots=life.snapshots, offset_bytes=life.snapshots[-1].log_offset_bytes))
    again.task.take(ReadLimit(0))
    again.run()
    assert again.reads == [3]
    assert again.reports == [3]
