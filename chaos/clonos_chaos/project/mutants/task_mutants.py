"""Mutants of a task: its log, alignment, barriers, the end of the stream, snapshots, services."""

from __future__ import annotations

from typing import Any

from clonos.core.log import determinants as d
from clonos.core.model.ids import CheckpointId
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.task.record_or_replay import TaskLog
from clonos.core.task.task import Task
from clonos.core.task.task_output import OutputPort
from clonos_chaos.project.mutants.mutation import Mutation, mutant


@mutant("2")
def trigger_is_not_in_the_log(mutation: Mutation) -> None:
    """A source's barrier is in its log."""
    _lose_entries(mutation, d.TRIGGER)


@mutant("2")
def timers_are_not_in_the_log(mutation: Mutation) -> None:
    """A timer that fires is in the log."""
    _lose_entries(mutation, d.TIMER)


@mutant("2")
def clock_is_not_in_the_log(mutation: Mutation) -> None:
    """The time that was read is in the log."""
    _lose_entries(mutation, d.CLOCK)


@mutant("2")
def end_is_not_in_the_log(mutation: Mutation) -> None:
    """The end of a source's input is in its log."""
    _lose_entries(mutation, d.END)


def _lose_entries(mutation: Mutation, tag: int) -> None:
    def append(right: Any, self: TaskLog, entry: bytes) -> None:
        if entry[0] != tag:
            right(self, entry)

    mutation.wrap(TaskLog, "append", append)


@mutant("2")
def barriers_are_not_in_the_log(mutation: Mutation) -> None:
    """A barrier is consumed by a separate STEP."""

    def append(right: Any, self: TaskLog, entry: bytes) -> None:
        right(self, entry)

    def live_step(right: Any, self: Task) -> None:
        for queue in self.inputs:
            while queue.pieces and queue.pieces[0].kind.is_control and queue.blocked_by is None and self.log.live:
                self._step(queue, 1)
                if self.is_final:
                    return
        right(self)

    mutation.wrap(TaskLog, "append", append)
    mutation.wrap(Task, "_live_step", live_step)


@mutant("2")
def replay_takes_other_counts(mutation: Mutation) -> None:
    """Replay consumes exactly as many elements as the STEP records."""

    def step(right: Any, self: Task, queue: Any, count: int, is_begun: bool = False) -> None:
        if self.log.live or count == 1 or queue.pieces[0].kind.is_control:
            right(self, queue, count, is_begun)
            return
        right(self, queue, count - 1, is_begun)
        self._step(queue, 1)

    mutation.wrap(Task, "_step", step)


@mutant("5")
def alignment_is_ignored(mutation: Mutation) -> None:
    """Barriers are aligned over all inputs."""

    def align(right: Any, self: Task, queue: Any, checkpoint: CheckpointId) -> None:
        if checkpoint > self.checkpoint:
            self._barrier(checkpoint)
        else:
            self.emit()

    mutation.wrap(Task, "_align", align)


@mutant("5")
def aligned_inputs_are_read_on(mutation: Mutation) -> None:
    """An input with a barrier waits for the other inputs."""

    def live_step(right: Any, self: Task) -> None:
        held = {queue.channel: queue.blocked_by for queue in self.inputs}
        for queue in self.inputs:
            if queue.pieces and queue.pieces[0].kind.is_data:
                queue.blocked_by = None
        right(self)
        if self.checkpoint < max((at or 0 for at in held.values()), default=0):
            for queue in self.inputs:
                queue.blocked_by = queue.blocked_by or held[queue.channel]

    mutation.wrap(Task, "_live_step", live_step)


@mutant("5")
def barriers_stand_for_themselves_only(mutation: Mutation) -> None:
    """A barrier stands for all earlier barriers that its channel lacks."""

    def align_or_end(right: Any, self: Task) -> None:
        open_queues = [queue for queue in self.inputs if not queue.has_ended]
        blocked = {queue.blocked_by for queue in open_queues}
        if open_queues and len(blocked) > 1:
            self.emit()
        else:
            right(self)

    mutation.wrap(Task, "_align_or_end", align_or_end)


@mutant("5")
def end_does_not_stand_for_barriers(mutation: Mutation) -> None:
    """The end of a stream stands for all later barriers."""

    def align_or_end(right: Any, self: Task) -> None:
        is_waiting = any(queue.blocked_by for queue in self.inputs) and any(queue.has_ended for queue in self.inputs)
        if is_waiting and not all(queue.has_ended for queue in self.inputs):
            self.emit()
        else:
            right(self)

    mutation.wrap(Task, "_align_or_end", align_or_end)


@mutant("5")
def input_positions_are_off_by_one(mutation: Mutation) -> None:
    """The snapshot holds the positions of the consumed input."""
    snapshot_with(mutation, inputs=lambda s: tuple((channel, max(0, seq - 1)) for channel, seq in s.inputs))


@mutant("5")
def output_positions_are_off_by_one(mutation: Mutation) -> None:
    """The snapshot holds the positions of the output after the barrier."""
    snapshot_with(mutation, outputs=lambda s: tuple((channel, seq + 1) for channel, seq in s.outputs))


@mutant("5")
def log_offset_is_off_by_one(mutation: Mutation) -> None:
    """The snapshot holds the offset of the log at the barrier."""
    snapshot_with(mutation, log_offset_bytes=lambda s: s.log_offset_bytes + 1)


@mutant("2")
def instant_is_not_in_the_snapshot(mutation: Mutation) -> None:
    """The snapshot holds the last timestamp: the clock never runs backwards, and deltas build on it."""
    snapshot_with(mutation, instant_ns=lambda s: max(0, s.instant_ns - 1_000_000))


@mutant("5")
def ended_inputs_are_forgotten(mutation: Mutation) -> None:
    """The snapshot holds which inputs have ended."""
    snapshot_with(mutation, ended=lambda s: ())


def snapshot_with(mutation: Mutation, **wrong: Any) -> None:
    """Changes fields of every snapshot that a task takes."""

    def encode(right: Any, self: Task, *arguments: Any) -> Snapshot:
        snapshot = right(self, *arguments)
        fields = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
        return Snapshot(**{**fields, **{name: change(snapshot) for name, change in wrong.items()}})

    mutation.wrap(Task, "_encode_snapshot", encode)


@mutant("2")
def seed_is_drawn_again_in_replay(mutation: Mutation) -> None:
    """The seed of an epoch is replayed."""

    def seed(right: Any, self: TaskLog) -> bytes:
        is_first, is_replay = not self._seed, not self.live
        found = right(self)
        if is_first and is_replay:
            found = self._seed = bytes(16)
        return bytes(found)

    mutation.wrap(TaskLog, "seed", seed)


@mutant("2")
def rng_goes_on_after_a_barrier(mutation: Mutation) -> None:
    """Random streams restart after each barrier."""

    def begin_epoch(self: TaskLog, checkpoint: int) -> None:
        self._occurrences.clear()

    mutation.swap(TaskLog, "begin_epoch", begin_epoch)


@mutant("2")
def clock_is_read_again_in_replay(mutation: Mutation) -> None:
    """Replay reads the recorded timestamps."""

    def instant_ns(right: Any, self: TaskLog, exact: bool) -> int:
        is_replay = not self.live
        found = right(self, exact)
        return int(max(found, self._port.now_ns()) if is_replay else found)

    mutation.wrap(TaskLog, "instant_ns", instant_ns)


@mutant("2")
def calls_are_made_again_in_replay(mutation: Mutation) -> None:
    """A recorded call is not made again in replay."""

    def follow(right: Any, self: TaskLog, tag: int, *asked: Any) -> Any:
        entry = right(self, tag, *asked)
        if tag == d.CALL and entry is not None and self.made is not None:  # type: ignore[attr-defined]
            return (*entry[:3], self._perform("ask", "again", self.made, None, is_in_doubt=False))  # type: ignore[attr-defined]
        return entry

    def call(right: Any, self: TaskLog, service: str, request: bytes, perform: Any, **named: Any) -> Any:
        self.made = None if named.get("effect") else perform  # type: ignore[attr-defined]
        return right(self, service, request, perform, **named)

    mutation.wrap(TaskLog, "follow", follow)
    mutation.wrap(TaskLog, "call", call)


@mutant("2")
def replay_takes_the_answer_of_another_call(mutation: Mutation) -> None:
    """A replayed call takes the outcome of the same request only."""

    def follow(right: Any, self: TaskLog, tag: int, *_asked: Any) -> Any:
        return right(self, tag)

    mutation.wrap(TaskLog, "follow", follow)


@mutant("7")
def calls_in_doubt_are_made_as_new(mutation: Mutation) -> None:
    """A call in doubt is looked up by its key, not made as if it were new."""

    def intend(right: Any, self: TaskLog, *intent: Any) -> Any:
        return right(self, *intent)[0], False

    mutation.wrap(TaskLog, "_intend", intend)


@mutant("7")
def calls_in_doubt_are_not_asked_for(mutation: Mutation) -> None:
    """A call in doubt with ``reconcile`` is looked up before it is made again."""

    def perform(
        right: Any, self: TaskLog, service: str, key: str, act: Any, in_doubt: Any, *, is_in_doubt: bool
    ) -> Any:
        return right(self, service, key, act, None, is_in_doubt=is_in_doubt and in_doubt is None)

    mutation.wrap(TaskLog, "_perform", perform)


@mutant("7")
def keys_differ_between_lives(mutation: Mutation) -> None:
    """The key of a call with an effect is the same in every incarnation."""

    def intend(right: Any, self: TaskLog, *intent: Any) -> Any:
        key, is_in_doubt = right(self, *intent)
        return key + ("again" if is_in_doubt else ""), is_in_doubt

    mutation.wrap(TaskLog, "_intend", intend)


@mutant("7")
def no_intent(mutation: Mutation) -> None:
    """INTENT is in the log before the call."""
    mutation.swap(TaskLog, "_intend", lambda self, intent, service: (f"{service} {self.end_bytes_followed}", False))


@mutant("11")
def last_steps_are_held_too(mutation: Mutation) -> None:
    """A replayed step is held back only while the log holds the next step completely."""

    def begins_with_whole_step(self: d.LogReader) -> bool:
        return not self.at_end and self.peek()[0] in (d.STEP, d.READ)

    mutation.swap(d.LogReader, "begins_with_whole_step", property(begins_with_whole_step))


@mutant("2")
def routing_begins_anew_in_each_life(mutation: Mutation) -> None:
    """Routing is a function of the output positions alone."""
    turns: dict[OutputPort, int] = {}

    def next_target(self: OutputPort) -> int:
        turns[self] = turns.get(self, 0) + 1
        return turns[self] % len(self.channels)

    mutation.swap(OutputPort, "_next_target", next_target)
