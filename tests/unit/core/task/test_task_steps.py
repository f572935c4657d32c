"""Barriers, end of stream, triggers, output budget and failures of one task, by commands (protocol 4 and 5)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from clonos.core.channel.output_budget import UNLIMITED
from clonos.core.log import determinants as d
from clonos.core.model.element_kind import LAST_BARRIER, ElementKind
from clonos.core.model.errors import Blame
from clonos.core.model.ids import ChannelId, CheckpointId, TaskId
from clonos.core.model.options import Options
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.ports.operator_chain import ROWS_AT_ONCE, FailedAt, NothingToRead, StepFailed
from clonos.core.ports.task_port import BudgetChanged, Command, Delivered, Journalled, TaskStopped, Triggered
from clonos.core.ports.task_snapshot import stops_at
from clonos.core.task.failure_report import describe_failure
from clonos.core.wire.recovery_messages import InputRange, Recourse, TaskFailed
from tests.harnesses.recording_chain import RecordingChain, clock, nothing, timer
from tests.harnesses.task_harness import (
    END,
    Element,
    Job,
    ScriptedTask,
    Start,
    barrier,
    chain_of_snapshots,
    check_repeats,
    encoded,
    rows,
    tags_of,
    watermark,
)

UNION = Plan(
    "union",
    (Vertex("source", 3, is_source=True), Vertex("union", 1), Vertex("next", 1)),
    (Edge(0, 1, Partitioning.REBALANCE, 0), Edge(1, 2, Partitioning.FORWARD, 0)),
)
READER = Plan(
    "reader", (Vertex("reader", 1, is_source=True), Vertex("next", 1)), (Edge(0, 1, Partitioning.FORWARD, 0),)
)


class Scripted(ScriptedTask):
    """Commands come one at a time, in the order of the script, whenever the task waits.

    ``open`` opens the gate, ``time`` passes until the instant that is waited for. ``arrivals``: what comes whether the
    task waits or not, before the script; None: nothing.
    """

    def __init__(self, job: Job, script: Sequence[Command | str], start: Start | None = None) -> None:
        super().__init__(job, 0, start)
        self.script = list(script)
        self.gated = False
        self.arrivals: list[Command | None] = []

    def run(self) -> Scripted:
        super().run()
        return self

    def receive(self, until_ns: int | None) -> Command | None:
        if self.arrivals:
            return self.arrivals.pop(0)
        if until_ns == 0:
            return None
        while self.script:
            command = self.script.pop(0)
            if command == "open":
                self.gated = False
                return BudgetChanged()
            elif command == "time":
                assert until_ns is not None
                self._now_ns = max(self._now_ns, until_ns)
                return None
            else:
                assert not isinstance(command, str)
                return command
        raise TaskStopped

    def budget_bytes(self) -> int:
        return 0 if self.gated else UNLIMITED

    @property
    def story(self) -> list[Any]:
        """The output: rows as they were numbered, ``b3`` for a barrier, ``end``."""
        found: list[Any] = []
        for kind, checkpoint, content in next(iter(self.outputs.values()), []):
            if kind is ElementKind.BARRIER:
                found.append(f"b{checkpoint}")
            elif kind is ElementKind.END:
                found.append("end")
            else:
                row = ast.literal_eval(content)
                if row[0] != "end":
                    found.append(row[0])
        return found


def sent(channel: int, elements: list[Element]) -> Delivered:
    kind = elements[0].kind
    checkpoint = CheckpointId(elements[0].content if kind is ElementKind.BARRIER else 0)
    return Delivered(ChannelId(channel), kind, len(elements), 0, checkpoint, encoded(elements))


def union(*script: Command | str, start: Start | None = None, **options: int) -> Scripted:
    made = Job(
        UNION,
        TaskId(3),
        lambda _: RecordingChain((nothing,)),
        options=replace(Options(), **options),  # type: ignore[arg-type]
    )
    return Scripted(made, script, start)


def trigger(checkpoint: int, then_pause: bool = False) -> Triggered:
    return Triggered(CheckpointId(checkpoint), then_pause)


def source(*script: Command | str, start: Start | None = None, records: int = 6) -> Scripted:
    splits = {0: list(range(records))}

    def new_chain(_: Random) -> RecordingChain:
        always = Random(0)
        always.random = lambda: 1.0  # type: ignore[method-assign]
        return RecordingChain((nothing,), splits=splits, poll_rng=always)

    job = Job(READER, TaskId(0), new_chain, options=Options(step_records_first=2))
    return Scripted(job, script, start)


# ------------------------------------------------------------------ alignment


def test_elements_after_a_barrier_wait_until_all_channels_have_it() -> None:
    life = union(
        sent(0, rows("a")),
        sent(0, barrier(1)),
        sent(0, rows("behind")),
        sent(1, rows("b")),
        sent(1, barrier(1)),
        sent(2, rows("c")),
        sent(2, barrier(1)),
    ).run()
    assert life.story == ["a", "b", "c", "b1", "behind"]


def test_a_barrier_subsumes_all_earlier_barriers_missing_on_its_channel_and_the_earliest_leaves_first() -> None:
    """A receiver that has barrier 1 of the same sender may wait for it with a full channel."""
    life = union(
        sent(0, barrier(1)),
        sent(0, rows("after 1")),
        sent(0, barrier(3)),
        sent(1, barrier(2)),  # stands for 1
        sent(1, rows("after 2")),
        sent(1, barrier(3)),
        sent(2, barrier(3)),  # stands for 1 and 2
    ).run()
    assert life.story == ["b1", "after 1", "b2", "after 2", "b3"]
    assert [s.checkpoint for s in life.snapshots] == [1, 2, 3]


def test_an_input_that_waits_behind_a_later_barrier_does_so_in_the_next_incarnation() -> None:
    first = union(sent(0, barrier(1)), sent(1, barrier(3)), sent(2, barrier(3)), sent(1, rows("late"))).run()
    assert first.story == ["b1"]
    (snapshot,) = first.snapshots
    assert snapshot.blocked == ((1, 3), (2, 3))
    start = Start(b"", [snapshot], snapshot.log_offset_bytes)
    second = union(sent(1, rows("after 3")), sent(0, rows("after 1")), sent(0, barrier(3)), start=start).run()
    assert second.story == ["after 1", "b3", "after 3"]


def test_the_end_of_stream_subsumes_all_later_barriers() -> None:
    life = union(
        sent(2, END),
        sent(0, barrier(1)),
        sent(1, barrier(1)),
        sent(1, END),
        sent(0, rows("a")),
        sent(0, barrier(2)),
        sent(0, barrier(5)),
    ).run()
    assert life.story == ["b1", "a", "b2", "b5"]


def test_an_end_of_stream_may_complete_an_alignment() -> None:
    life = union(sent(0, barrier(1)), sent(1, barrier(1)), sent(0, rows("behind")), sent(2, END)).run()
    assert life.story == ["b1", "behind"]
    assert [s.ended for s in life.snapshots] == [(2,)]


def test_when_all_inputs_have_ended_the_task_ends_once_with_a_final_snapshot() -> None:
    life = union(sent(0, barrier(4)), sent(1, barrier(4)), sent(2, barrier(4)), *(sent(i, END) for i in range(3))).run()
    assert life.story == ["b4", "end"]
    assert [(s.checkpoint, s.final, s.ended) for s in life.snapshots] == [(4, False, ()), (5, True, (0, 1, 2))]
    assert life.task.is_final


def test_a_snapshot_has_the_positions_just_after_the_barrier_not_the_received_ones() -> None:
    life = union(
        sent(0, rows("a", "b")),
        sent(0, barrier(1)),
        sent(0, rows("c", "d", "e")),
        sent(1, barrier(1)),
        sent(2, rows("f")),
        sent(2, barrier(1)),
    ).run()
    (snapshot,) = life.snapshots
    assert snapshot.inputs == ((0, 3), (1, 1), (2, 2))
    assert snapshot.outputs == ((3, 4),)
    assert snapshot.log_offset_bytes == len(b"".join(d.step(i, n) for i, n in ((0, 2), (0, 1), (1, 1), (2, 1), (2, 1))))


def test_an_alignment_over_ended_inputs_continues_in_the_next_incarnation() -> None:
    first = union(
        sent(0, END), sent(1, barrier(1)), sent(2, barrier(1)), sent(1, barrier(2)), sent(2, barrier(2))
    ).run()
    start = Start(b"", chain_of_snapshots(first, 1), first.snapshots[0].log_offset_bytes)
    second = union(sent(1, rows("a")), sent(2, barrier(2)), sent(1, barrier(2)), start=start).run()
    assert second.story == ["a", "b2"]
    assert second.snapshots[0].previous == 1


def test_g45_an_incarnation_restored_from_a_final_state_keeps_serving_and_compares_positions() -> None:
    first = union(*(sent(i, END) for i in range(3))).run()
    (final,) = first.snapshots
    assert (final.checkpoint, final.final) == (1, True)
    second = union(start=Start(b"", [final], final.log_offset_bytes)).run()
    assert (second.task.is_final, second.live_at, second.outputs) == (True, {3: 2}, {})


def test_a_step_joins_several_batches_and_never_spans_a_barrier() -> None:
    life = union()
    life.arrivals = [sent(0, rows(1, 2)), sent(0, rows(3)), sent(0, barrier(1)), sent(0, rows(4)), None]
    life.run()
    assert life.log == d.step(0, 3) + d.step(0, 1)
    assert life.story == [1, 2, 3]


def test_a_full_state_is_stored_when_the_chain_has_its_maximum_length() -> None:
    script = [sent(channel, barrier(c)) for c in range(1, 8) for channel in range(3)]
    life = union(*script, snapshot_chain_max=3).run()
    assert [s.previous for s in life.snapshots] == [None, 1, 2, 3, 4, 5, 6]
    assert list(life.wholes) == [4, 7]


def test_the_length_of_a_snapshot_chain_includes_earlier_incarnations() -> None:
    start, lengths = None, []
    for checkpoint in range(1, 8):
        life = union(*(sent(channel, barrier(checkpoint)) for channel in range(3)), start=start, snapshot_chain_max=3)
        (snapshot,) = life.run().snapshots
        chain = [*(start.snapshots if start is not None else ()), snapshot]
        lengths.append(len(chain))
        for whole in life.wholes.values():  # it is stored before this life ends
            chain = [replace_struct(snapshot, previous=None, changes=b"".join(whole), chain_length=1)]
        start = Start(b"", chain, snapshot.log_offset_bytes)
    assert lengths == [1, 2, 3, 4, 2, 3, 4]


# ------------------------------------------------------------------ idle inputs and time


def test_c18_timers_fire_and_barriers_pass_without_any_row() -> None:
    made = Job(UNION, TaskId(3), lambda _: RecordingChain((timer,), draws_at_timers=False))
    barriers = [sent(channel, barrier(1)) for channel in range(3)]
    life = Scripted(made, [sent(0, rows("a")), "time", "time", *barriers]).run()
    assert life.story == ["a", "fired", "fired", "fired", "b1"]
    check_repeats(
        life,
        ScriptedTask(
            replace(made, inputs={0: [*rows("a"), *barrier(1)], 1: barrier(1), 2: barrier(1)}), 5, Start(life.log)
        ).run(),
    )


# ------------------------------------------------------------------ sources


def test_a_repeated_trigger_inserts_one_barrier_between_two_reads() -> None:
    life = source(records=2)
    life.gated = True
    life.script = [trigger(1), trigger(1), trigger(3), trigger(2), trigger(1), "open"]
    life.run()
    assert life.story == ["b1", "b3", 0, 1, "end"]


def test_g43_a_barrier_passes_while_reading_is_paused_by_the_output_budget() -> None:
    life = source(trigger(1), trigger(2), records=6)
    life.gated = True
    assert life.run().story == ["b1", "b2"]


def test_g39_a_trigger_received_during_replay_takes_effect_when_the_log_has_ended() -> None:
    life = source(start=Start(d.numbers(d.READ, 0, 2) + d.numbers(d.TRIGGER, 1)), records=4)
    life.arrivals = [trigger(1), trigger(2)]
    assert life.run().story == [0, 1, "b1", "b2", 2, 3, "end"]


def test_a_source_that_pauses_reads_nothing_after_its_barrier() -> None:
    life = source(trigger(1, then_pause=True), "open", records=4)
    life.gated = True
    assert life.run().story == ["b1"]
    assert not life.task.is_final


def test_a_barrier_at_which_the_job_stops_is_marked_and_so_are_its_snapshot_and_those_of_a_replay() -> None:
    life = source(trigger(1), trigger(2, then_pause=True), records=4)
    life.gated = True
    life.run()
    assert tags_of(life.log) == (d.TRIGGER, d.LAST_TRIGGER)
    again = source(start=Start(life.log), records=4).run()
    for each in (life, again):
        assert [taken.is_at_stop for taken in each.snapshots[:2]] == [False, True]


def test_a_snapshot_before_the_stop_knows_of_it_and_a_later_generation_does_not() -> None:
    def last(channel: int) -> Delivered:
        return Delivered(ChannelId(channel), ElementKind.BARRIER, 1, 0, CheckpointId(2), LAST_BARRIER)

    life = union(last(0), sent(1, barrier(1)), sent(2, barrier(1)), last(1), last(2)).run()
    first, second = life.snapshots
    assert (first.checkpoint, first.stops_at, first.is_at_stop) == (1, 2, False)
    assert (second.checkpoint, second.is_at_stop) == (2, True)
    assert stops_at(second, second.incarnation) == 2
    assert stops_at(second, second.incarnation + 1) == 0


def test_a_source_that_is_to_end_reads_nothing_after_its_barrier_and_ends() -> None:
    life = source(Triggered(CheckpointId(1), False, then_end=True), "open", records=4)
    life.gated = True
    assert life.run().story == ["b1", "end"]
    assert life.task.is_final
    again = source(start=Start(life.log), records=4).run()
    assert again.story == ["b1", "end"]


class PushedChain(RecordingChain):
    """Source of one split whose records, of a byte each, come from a journal."""

    def feed(self, data: bytes) -> bool:
        self.splits[0] = [*self.splits[0], *data]
        return True

    def unread_bytes(self) -> int:
        return len(self.splits[0]) - self.offsets[0]

    def poll(self, records_max: int) -> tuple[int, int] | NothingToRead:
        return (0, min(records_max, self.unread_bytes())) if self.unread_bytes() else NothingToRead.NOW


class PushedTask(Scripted):
    def open_journal(self) -> None:
        pass


def pushed(*script: Command | str, start: Start | None = None) -> PushedTask:
    vertices = Vertex("reader", 1, is_source=True, is_journalled=True), READER.vertices[1]
    plan = replace(READER, vertices=vertices)
    job = Job(plan, TaskId(0), lambda _: PushedChain((nothing,), splits={0: []}), options=Options(step_records_first=2))
    return PushedTask(job, script, start)


def test_a_task_reads_all_that_its_producer_counts_as_taken_before_the_barrier_that_the_job_stops_at() -> None:
    life = pushed()
    life.arrivals = [Journalled(b"abcde"), trigger(1, then_pause=True), trigger(1, then_pause=True)]
    assert life.run().story == [*b"abcde", "b1"]
    assert [snapshot.is_at_stop for snapshot in life.snapshots] == [True]


def test_a_task_stops_at_once_where_some_keepers_may_lack_what_its_producer_gave() -> None:
    life = pushed(trigger(1, then_pause=True), start=Start(journal=b"abcde"))
    assert life.run().story == ["b1"]


def test_a_final_source_ignores_triggers() -> None:
    life = source(trigger(7), trigger(8), records=2).run()
    assert life.story == [0, 1, "end"]
    assert tags_of(life.log) == (d.READ, d.END, d.CLOCK, d.SEED)


# ------------------------------------------------------------------ width


def test_a6_a_task_with_two_hundred_inputs_and_two_hundred_outputs_replays() -> None:
    plan = Plan(
        "wide",
        (Vertex("source", 200, is_source=True), Vertex("work", 1), Vertex("next", 200)),
        (Edge(0, 1, Partitioning.REBALANCE, 0), Edge(1, 2, Partitioning.REBALANCE, 0)),
    )
    inputs = {channel: [*rows(channel, channel + 1000), *barrier(1), *END] for channel in range(200)}
    job = Job(plan, TaskId(200), lambda _: RecordingChain((clock,)), inputs)
    first = ScriptedTask(job, 1).run()
    assert first.task.is_final
    assert sum(len(elements) for elements in first.outputs.values()) == 400 + 1 + 2 * 200
    check_repeats(first, ScriptedTask(job, 2, Start(first.log)).run())


# ------------------------------------------------------------------ failures of user code


class Raising(RecordingChain):
    def process_rows(self, port: int, batch: list[Any], times: Any = None) -> None:
        if "bad" in batch:
            index = batch.index("bad")
            try:
                raise ValueError("no such word")
            except ValueError as error:
                raise StepFailed(FailedAt("split", index, repr(batch[index]))) from error
        super().process_rows(port, batch)


def failure(life: ScriptedTask) -> TaskFailed:
    with pytest.raises(StepFailed) as raised:
        life.run()
    return describe_failure(life.task, raised.value)


def in_one_step(job: Job, *parts: list[Element]) -> Scripted:
    """A life whose second channel has all parts before a step takes the first one."""
    life = Scripted(job, [])
    life.arrivals = [sent(1, part) for part in parts if part]
    return life


def test_a_failure_names_the_element_by_channel_and_number_with_step_and_record() -> None:
    made = Job(UNION, TaskId(3), lambda _: Raising((nothing,)))
    script = [sent(1, rows("a", "b", "c")), sent(1, rows("d", "bad", "e"))]
    reported = failure(Scripted(made, script))
    assert reported.at == InputRange(ChannelId(1), 4, 1)
    assert (reported.step, reported.record, reported.error) == ("split", "'bad'", "ValueError: no such word")
    assert (reported.blame, reported.recourse) == (Blame.JOB, Recourse.RETRY)
    assert "no such word" in reported.traceback


@pytest.mark.parametrize("between", [[], watermark(7)])
def test_a_failure_in_a_large_step_names_its_element(between: list[Element]) -> None:
    made = Job(UNION, TaskId(3), lambda _: Raising((nothing,)), options=Options(step_records_first=3 * ROWS_AT_ONCE))
    values: list[Any] = [*range(2 * ROWS_AT_ONCE), "bad", "e"]
    reported = failure(in_one_step(made, rows(*values[:5]), between, rows(*values[5:])))
    assert reported.at == InputRange(ChannelId(1), 2 * ROWS_AT_ONCE + len(between), 1)


class Unencodable(RecordingChain):
    def process_rows(self, port: int, rows: list[Any], times: Any = None) -> None:
        super().process_rows(port, [object() if row == "bad" else row for row in rows])


@pytest.mark.parametrize("between", [[], watermark(7)])
def test_a_result_without_an_encoding_may_come_from_any_element_of_its_step(between: list[Element]) -> None:
    options = Options(step_records_first=3 * ROWS_AT_ONCE)
    made = Job(UNION, TaskId(3), lambda _: Unencodable((nothing,)), options=options)
    reported = failure(in_one_step(made, rows(0, "bad", 2), between, rows(*range(2 * ROWS_AT_ONCE))))
    assert reported.at == InputRange(ChannelId(1), 0, 3 + len(between) + 2 * ROWS_AT_ONCE)


class RaisingAtWatermarks(RecordingChain):
    def advance_watermark(self, watermark: Any) -> None:
        raise StepFailed(FailedAt("window", 4, "the result of the fifth window"))


@pytest.mark.parametrize("before", [[], rows("a", "b")])
def test_a_failure_at_a_watermark_names_no_record_of_its_step(before: list[Element]) -> None:
    options = Options(step_records_first=100)
    made = Job(UNION, TaskId(3), lambda _: RaisingAtWatermarks((nothing,)), options=options)
    life = in_one_step(made, before, watermark(7), rows(*range(9)))
    life.arrivals = [sent(0, watermark(8)), sent(2, watermark(8)), None, None, *life.arrivals]
    assert failure(life).at == InputRange(ChannelId(1), 0, len(before) + 10)


def test_a_large_step_passes_in_parts_and_is_one_determinant_that_replays() -> None:
    count = 2 * ROWS_AT_ONCE + 9
    made: list[RecordingChain] = []

    def new_chain(_: Random) -> RecordingChain:
        made.append(RecordingChain((nothing,)))
        return made[-1]

    job = Job(UNION, TaskId(3), new_chain, options=Options(step_records_first=3 * ROWS_AT_ONCE))
    script = [sent(1, rows(*range(count))), *[sent(channel, END) for channel in range(3)]]
    first = Scripted(job, script).run()
    assert d.elements_covered(first.log, 3) == [1, count + 1, 1]
    assert tags_of(first.log).count(d.STEP) == 4
    assert made[0].batches[:3] == [ROWS_AT_ONCE, ROWS_AT_ONCE, 9]
    check_repeats(first, Scripted(job, script, Start(first.log)).run())
    assert made[1].batches == made[0].batches


def test_g49_a_poison_record_of_a_source_has_the_same_number_in_incarnations_of_different_restores() -> None:
    def new_chain(_: Random) -> RecordingChain:
        always = Random(0)
        always.random = lambda: 1.0  # type: ignore[method-assign]
        return Raising((nothing,), splits={0: [0, 1, 2, 3, "bad", 5]}, poll_rng=always)

    job = Job(READER, TaskId(0), new_chain, options=Options(step_records_first=1))
    first = Scripted(job, [])
    first.arrivals = [None, None, trigger(1)]
    reported = failure(first)
    again = failure(Scripted(job, [], Start(b"", first.snapshots, first.snapshots[0].log_offset_bytes)))
    assert first.snapshots[0].records_in == 2
    assert reported.at == again.at == InputRange(None, 4, 1)
