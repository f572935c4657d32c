"""Transfer of the state of a checkpoint to a job whose tasks have changed: which task has the state of which step.

State belongs to steps by name. At a checkpoint every element that was sent is in the state of its receiver, so a task
is the state of its steps and the position of its source. Channels begin again at 0. A task takes the state of its steps
from the tasks of the same index, so steps with state keep their parallelism and the exchange in front of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from msgspec import structs

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry
from clonos.core.checkpoint.pending_snapshots import name_of_snapshot
from clonos.core.checkpoint.plan_shape import PlanShape, shape_of, step_differences
from clonos.core.checkpoint.snapshot import MOVED, SNAPSHOT_FORMAT, decode_snapshot, encode_snapshot
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId, view_number
from clonos.core.model.plan import Partitioning
from clonos.core.ports.task_snapshot import ChannelTime, EventTime, Snapshot, StateSource
from clonos.io.store.store import CheckpointStore
from clonos.operators.job_image import JobImage

SOURCE: Final = "as a source"


def differences_of_transfer(
    metadata: CheckpointMetadata, image: JobImage, source_of: Mapping[int, str]
) -> tuple[str, ...]:
    """Returns what keeps state from being transferred, in words.

    ``source_of``: the source of each stored vertex that has one.
    """
    found = tuple(_step_differences(metadata, image, source_of))
    return found or tuple(_end_differences(Ends(metadata, image, source_of)))


def _step_differences(metadata: CheckpointMetadata, image: JobImage, source_of: Mapping[int, str]) -> Iterator[str]:
    stored, current = metadata.plan, shape_of(image.plan)
    if stored.max_parallelism != current.max_parallelism:
        yield f"max_parallelism was {stored.max_parallelism}, is {current.max_parallelism}"
    for number, vertex in enumerate(current.vertices):
        steps = {step.name: step for step in vertex.steps}
        for origin in origins_of(stored, image, source_of, number):
            was = stored.vertices[origin]
            shared = [step.name for step in was.steps if step.name in steps] or [source_of.get(origin, vertex.name)]
            if was.parallelism != vertex.parallelism:
                yield f'the parallelism of the step "{shared[0]}" was {was.parallelism}, is {vertex.parallelism}'
            if (before := _exchanges(stored, was.name)) != (now := _exchanges(current, vertex.name)):
                yield f'the step "{shared[0]}" took its input {_words(before)}, and takes it {_words(now)}'
            for step in was.steps:
                if step.name in steps:
                    yield from step_differences(step, steps[step.name])


def _end_differences(ends: Ends) -> Iterator[str]:
    """Yields a difference for each task that has ended and would get input, or that has not and would get none."""
    plan = ends.image.plan
    for task in plan.tasks:
        senders = {channel.sender for channel in plan.inputs[task]}
        if senders and ends.has_ended(task) != all(map(ends.has_ended, senders)):
            name, state = plan.task_name(task), "had ended" if ends.has_ended(task) else "had not ended"
            yield f'the task "{name}" {state}, in contrast to those that send to it now'


class Ends:
    """Which tasks of a job have ended at the checkpoint of a savepoint: those whose state and input come from such."""

    def __init__(self, metadata: CheckpointMetadata, image: JobImage, source_of: Mapping[int, str]) -> None:
        self.image, self._metadata, self._stored, self._source_of = image, metadata, metadata.plan, source_of
        self._firsts = first_tasks(metadata.plan)
        self._known: dict[int, bool] = {}

    def has_ended(self, task: TaskId) -> bool:
        """Returns whether a task of the job has ended."""
        if task not in self._known:
            self._known[task] = self._found(task)
        return self._known[task]

    def _found(self, task: TaskId) -> bool:
        plan = self.image.plan
        origins = origins_of(self._stored, self.image, self._source_of, plan.vertex_of[task])
        if origins:
            index = plan.index_of(task)
            return all(self._metadata.tasks[self._firsts[origin] + index].final for origin in origins)
        return bool(plan.inputs[task]) and all(self.has_ended(channel.sender) for channel in plan.inputs[task])


def first_tasks(shape: PlanShape) -> list[int]:
    """Returns the first task of each vertex of a stored plan."""
    return list(accumulate((vertex.parallelism for vertex in shape.vertices), initial=0))


def origins_of(stored: PlanShape, image: JobImage, source_of: Mapping[int, str], vertex: int) -> list[int]:
    """Returns the stored vertices of which a vertex takes state: those with one of its steps, or with its source."""
    steps = {step.name for step in image.plan.vertices[vertex].steps}
    nodes = {node.step for node in image.vertices[vertex].nodes}
    return [
        number
        for number, was in enumerate(stored.vertices)
        if any(step.name in steps for step in was.steps) or source_of.get(number, "") in nodes
    ]


def _exchanges(shape: PlanShape, vertex: str) -> frozenset[str]:
    """Returns how records come to the tasks of a vertex, looked up through exchanges that keep the index of a task."""
    found: set[str] = set()
    for edge in shape.edges:
        if edge.target == vertex:
            is_forward = edge.partitioning == str(Partitioning.FORWARD)
            found |= _exchanges(shape, edge.source) if is_forward else {f"by {edge.partitioning}"}
    return frozenset(found or {SOURCE})


def _words(exchanges: frozenset[str]) -> str:
    return " and ".join(sorted(exchanges))


class StateTransfer:
    """Transfer from one checkpoint to one job, which ``differences_of_transfer`` found possible.

    It reads the heads of snapshots and no state. Each task of the job gets a snapshot that says from which tasks of the
    checkpoint it takes the state of which steps; its slot restores that.
    """

    def __init__(
        self,
        metadata: CheckpointMetadata,
        image: JobImage,
        source_of: Mapping[int, str],
        read_object: Callable[[str], Iterable[bytes | memoryview]],
    ) -> None:
        self._metadata, self._image, self._read_object = metadata, image, read_object
        self._stored, self._plan, self._source_of = metadata.plan, image.plan, source_of
        self._firsts = first_tasks(self._stored)
        self._ends = Ends(metadata, image, source_of)
        self._incarnation = max(entry.incarnation for entry in metadata.tasks)
        self._heads = [self._head(entry) for entry in metadata.tasks]
        self._instant_ns = max((head.instant_ns for head in self._heads if head is not None), default=0)
        self._sent = self._received_times()

    def entries(self, checkpoint: CheckpointId, write: Callable[[Snapshot], str]) -> tuple[TaskEntry, ...]:
        """Returns the entries of a checkpoint of the job. ``write`` stores a snapshot and returns its name.

        Raises: what ``read_object`` and ``write`` raise.
        """
        return tuple(self._entry(task, checkpoint, write) for task in self._plan.tasks)

    def _head(self, entry: TaskEntry) -> Snapshot | None:
        """Returns the last snapshot of a task; None at the job's start."""
        if not entry.objects:
            return None
        last = entry.objects[-1]
        return decode_snapshot(next(iter(self._read_object(last))), last)

    def _received_times(self) -> dict[int, ChannelTime]:
        """Returns the watermark that each stored task had sent, by what a receiver had of it."""
        senders = _senders(self._stored, self._firsts)
        return {
            senders[time.channel]: time
            for head in self._heads
            if head is not None and head.event_time is not None
            for time in head.event_time.channels
        }

    def _entry(self, task: TaskId, checkpoint: CheckpointId, write: Callable[[Snapshot], str]) -> TaskEntry:
        vertex, index = self._plan.vertex_of[task], self._plan.index_of(task)
        nodes = {node.step for node in self._image.vertices[vertex].nodes}
        objects: list[str] = []
        sources: list[StateSource] = []
        head: Snapshot | None = None
        for origin in origins_of(self._stored, self._image, self._source_of, vertex):
            was = self._stored.vertices[origin]
            number = self._firsts[origin] + index
            chain = self._metadata.tasks[number].objects
            if chain:
                objects += chain
                sources.append(StateSource(was.name, index, was.parallelism, tuple(sorted(nodes)), len(chain)))
            is_reading = self._source_of.get(origin, "") in nodes
            if (found := self._heads[number]) is not None and (head is None or is_reading):
                head = found if is_reading else _without_source(found)
        moved = self._snapshot(task, checkpoint, head, tuple(sources))
        return TaskEntry(task, moved.incarnation, checkpoint, (*objects, write(moved)), 0, moved.final, ())

    def _snapshot(
        self, task: TaskId, checkpoint: CheckpointId, head: Snapshot | None, sources: tuple[StateSource, ...]
    ) -> Snapshot:
        return Snapshot(
            format=SNAPSHOT_FORMAT,
            task=task,
            incarnation=Incarnation(self._incarnation),
            checkpoint=checkpoint,
            previous=None,
            inputs=tuple((channel.id, 0) for channel in self._plan.inputs[task]),
            outputs=tuple((channel.id, 0) for channel in self._plan.outputs[task]),
            ended=tuple(channel.id for channel in self._plan.inputs[task] if self._ends.has_ended(channel.sender)),
            log_offset_bytes=0,
            instant_ns=self._instant_ns,
            final=self._ends.has_ended(task),
            position=head.position if head is not None else b"",
            changes=b"",
            records_in=head.records_in if head is not None else 0,
            journal_offset_bytes=head.journal_offset_bytes if head is not None else 0,
            calls=head.calls if head is not None else (),
            event_time=self._event_time(task, head),
            metrics=head.metrics if head is not None else (),
            sources=sources,
        )

    def _event_time(self, task: TaskId, head: Snapshot | None) -> EventTime | None:
        """Returns the event time of a task: its own if it has state, and what its senders had sent."""
        times = []
        for channel in self._plan.inputs[task]:
            sender = self._plan.vertex_of[channel.sender]
            for origin in origins_of(self._stored, self._image, self._source_of, sender):
                sent = self._sent.get(self._firsts[origin] + self._plan.index_of(channel.sender))
                if sent is not None and self._plan.edges[channel.edge].has_event_time:
                    times.append(ChannelTime(channel.id, sent.reached_ns, sent.is_idle))
                    break
        own = head.event_time if head is not None else None
        if not times and own is None:
            return None
        return EventTime(own.own_ns if own else None, bool(own and own.is_idle), tuple(times))


def write_moved(store: CheckpointStore, moved: Snapshot) -> str:
    """Writes a snapshot that takes over state; returns its name. Raises: StoreFailed."""
    # Its name has this term: none of the tasks whose state it takes over can write to it.
    name = name_of_snapshot(structs.replace(moved, incarnation=Incarnation(view_number(store.term, 0))), MOVED)
    return store.write_object(name, [encode_snapshot(moved)])


def _without_source(head: Snapshot) -> Snapshot:
    """Returns the head of a task whose source the job reads elsewhere."""
    return structs.replace(head, position=b"", journal_offset_bytes=0, calls=())


def _senders(shape: PlanShape, firsts: list[int]) -> list[int]:
    """Returns the sending task of each channel of a stored plan, in the order of ``Plan.channels``."""
    number = {vertex.name: place for place, vertex in enumerate(shape.vertices)}
    found: list[int] = []
    for edge in shape.edges:
        place = number[edge.source]
        is_single = not edge.target or edge.partitioning == str(Partitioning.FORWARD)
        copies = 1 if is_single else shape.vertices[number[edge.target]].parallelism
        for index in range(shape.vertices[place].parallelism):
            found += [firsts[place] + index] * copies
    return found
