"""Transfer of the state of a checkpoint to a job whose tasks have changed: which task has the state of which step.

State belongs to steps by name. At a checkpoint every element that was sent is in the state of its receiver, so a task
is the state of its steps and the position of its source. Channels begin again at 0. A task takes the state of its steps
from the tasks of the same index, so steps with state keep their parallelism and the exchange in front of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate, chain
from typing import Final

from msgspec import structs

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry
from clonos.core.checkpoint.pending_snapshots import name_of_snapshot
from clonos.core.checkpoint.plan_shape import FLAGS, PlanShape, VertexShape, shape_of, step_differences
from clonos.core.checkpoint.snapshot import MOVED, SNAPSHOT_FORMAT, decode_snapshot, encode_snapshot, is_moved
from clonos.core.log.call_usage import spread_spending
from clonos.core.model.ids import ChannelId, CheckpointId, Incarnation, TaskId, view_number
from clonos.core.model.metric_series import MetricFamily, united_families
from clonos.core.model.plan import Partitioning
from clonos.core.ports.task_snapshot import ChannelTime, EventTime, Snapshot, StateSource
from clonos.io.store.store import CheckpointStore
from clonos.operators.job_image import JobImage
from clonos.operators.source_position import dealt_position

SOURCE: Final = "as a source"

ReadObject = Callable[[str], Iterable[bytes | memoryview]]
"""Returns the pieces of an object of a store."""


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
            fixed = image.plan.vertices[number].fixed
            if was.parallelism != vertex.parallelism and fixed:
                widths = f"was {was.parallelism}, is {vertex.parallelism}"
                yield f'the parallelism of the step "{shared[0]}" {widths}, and cannot change: {fixed}'
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
            return all(self._metadata.tasks[old].final for origin in origins for old in self._old_tasks(origin, task))
        return bool(plan.inputs[task]) and all(self.has_ended(channel.sender) for channel in plan.inputs[task])

    def _old_tasks(self, origin: int, task: TaskId) -> range:
        """Returns the task of the same index; with another width, all tasks."""
        was, first, plan = self._stored.vertices[origin], self._firsts[origin], self.image.plan
        is_same = was.parallelism == plan.vertices[plan.vertex_of[task]].parallelism
        index = plan.index_of(task)
        return range(first + index, first + index + 1) if is_same else range(first, first + was.parallelism)


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
    checkpoint it takes the state of which steps; its slot restores that. ``is_same_job``: the job goes on with other
    widths alone, and with the numbers of its output outside.
    """

    def __init__(
        self,
        metadata: CheckpointMetadata,
        image: JobImage,
        source_of: Mapping[int, str],
        read_object: ReadObject,
        is_same_job: bool = False,
    ) -> None:
        self._metadata, self._image = metadata, image
        self._stored, self._plan, self._source_of = metadata.plan, image.plan, source_of
        self._is_same_job = is_same_job
        self._firsts = first_tasks(self._stored)
        self._ends = Ends(metadata, image, source_of)
        self._incarnation = max(entry.incarnation for entry in metadata.tasks)
        self._heads = [head_of(entry, read_object) for entry in metadata.tasks]
        self._instant_ns = max((head.instant_ns for head in self._heads if head is not None), default=0)
        channels = _channels(self._stored, self._firsts)
        self._sent = {
            channels[time.channel][0]: time
            for head in self._heads
            if head is not None and head.event_time is not None
            for time in head.event_time.channels
        }
        #: Number of the next row of each task with output outside the job
        self._next_rows = external_numbers(metadata, lambda entry: self._heads[entry.task]) if is_same_job else {}

    @property
    def retired(self) -> dict[str, int]:
        """Tasks with output outside the job that do not run any more, and the number of the next row of each."""
        running = {self._plan.task_name(task) for task in self._plan.tasks}
        return {name: number for name, number in self._next_rows.items() if name not in running}

    def refusals(self) -> Iterator[str]:
        """Yields what of the checkpoint keeps the widths from changing, in words."""
        for vertex, now in enumerate(self._plan.vertices):
            yield from self._waiting_refusals(vertex)
            if not any(step.kind for step in now.steps):
                continue
            for origin in self._origins(vertex):
                if len(set(map(_own_ns, self._old_heads(origin, vertex)))) > 1:
                    yield f'the tasks of "{now.name}" stand at different watermarks: take another checkpoint'

    def _waiting_refusals(self, vertex: int) -> Iterator[str]:
        """Yields the steps of a vertex with another number of tasks in which records wait."""
        waiting: dict[str, list[str]] = {}
        for origin in self._origins(vertex):
            if self._stored.vertices[origin].parallelism != self._plan.vertices[vertex].parallelism:
                for name in sorted({name for head in self._old_heads(origin, vertex) for name in head.waiting}):
                    step, _, state = name.partition("/")
                    waiting.setdefault(step, []).append(state)
        for step, states in waiting.items():
            where = f'"{step}" ({", ".join(states)}) at checkpoint {self._metadata.checkpoint}'
            yield (
                f"records wait in the step {where}, which another number of tasks cannot take: resume with the number"
                " of tasks that it had, and change it when a checkpoint has none of them, or go back to such a"
                " checkpoint with --checkpoint N"
            )

    def entries(self, checkpoint: CheckpointId, write: Callable[[Snapshot, str], str]) -> tuple[TaskEntry, ...]:
        """Returns the entries of a checkpoint of the job. ``write`` stores a snapshot of a kind; returns its name.

        Raises: what ``write`` raises.
        """
        return tuple(self._entry(task, checkpoint, write) for task in self._plan.tasks)

    # ------------------------------------------------------------------ what the checkpoint has

    def _origins(self, vertex: int) -> list[int]:
        return origins_of(self._stored, self._image, self._source_of, vertex)

    def _old_tasks(self, origin: int, vertex: int, index: int) -> list[int]:
        """Returns the tasks of a stored vertex of which a task takes state."""
        width, first = self._stored.vertices[origin].parallelism, self._firsts[origin]
        is_same = width == self._plan.vertices[vertex].parallelism
        return [first + index] if is_same else list(range(first, first + width))

    def _old_heads(self, origin: int, vertex: int, index: int = 0) -> list[Snapshot]:
        """Returns the heads of those tasks, without those that had ended if others had not."""
        tasks = self._old_tasks(origin, vertex, index)
        going = [task for task in tasks if not self._metadata.tasks[task].final] or tasks
        return [head for task in going if (head := self._heads[task]) is not None]

    # ------------------------------------------------------------------ what the job goes on with

    def _entry(self, task: TaskId, checkpoint: CheckpointId, write: Callable[[Snapshot, str], str]) -> TaskEntry:
        vertex, index = self._plan.vertex_of[task], self._plan.index_of(task)
        origins = self._origins(vertex)
        tasks = [(origin, old) for origin in origins for old in self._old_tasks(origin, vertex, index)]
        chains = {old: found for _, old in tasks if (found := self._metadata.tasks[old].objects)}
        sources = tuple(
            StateSource(was.name, old - self._firsts[origin], was.parallelism, len(chains[old]))
            for origin, old in tasks
            if old in chains
            for was in (self._stored.vertices[origin],)
        )
        moved = self._moved(task, checkpoint)
        width = self._plan.vertices[vertex].parallelism
        is_same = len(sources) == 1 and sources[0].width == width and not is_moved(next(iter(chains.values()))[-1])
        if self._is_same_job and is_same:  # its chain goes on
            moved, kind = structs.replace(moved, previous=self._metadata.tasks[tasks[0][1]].snapshot), "delta"
        else:
            moved, kind = structs.replace(moved, sources=sources), MOVED
        objects = (*chain.from_iterable(chains.values()), write(moved, kind))
        return TaskEntry(task, moved.incarnation, checkpoint, objects, 0, moved.final, ())

    def _moved(self, task: TaskId, checkpoint: CheckpointId) -> Snapshot:
        """Returns the snapshot of a task without its state."""
        plan, vertex, index = self._plan, self._plan.vertex_of[task], self._plan.index_of(task)
        nodes = {node.step for node in self._image.vertices[vertex].nodes}
        heads = [self._one_head(origin, vertex, index) for origin in self._origins(vertex)]
        reading = [self._source_of.get(origin, "") in nodes for origin in self._origins(vertex)]
        read = next((head for head, is_reading in zip(heads, reading, strict=True) if is_reading), None)
        head = read or next(filter(None, heads), None)
        next_row = self._next_rows.get(plan.task_name(task), 0)
        counting = self._counting(vertex, index)
        return Snapshot(
            format=SNAPSHOT_FORMAT,
            task=task,
            incarnation=Incarnation(self._incarnation),
            checkpoint=checkpoint,
            previous=None,
            inputs=tuple((channel.id, 0) for channel in plan.inputs[task]),
            outputs=tuple((each.id, 0 if each.receiver is not None else next_row) for each in plan.outputs[task]),
            ended=tuple(channel.id for channel in plan.inputs[task] if self._ends.has_ended(channel.sender)),
            log_offset_bytes=0,
            instant_ns=self._instant_ns,
            final=self._ends.has_ended(task),
            position=read.position if read is not None else b"",
            changes=b"",
            records_in=sum(each.records_in for each in counting),
            journal_offset_bytes=read.journal_offset_bytes if read is not None else 0,
            calls=read.calls if read is not None else (),
            event_time=self._event_time(task, head),
            metrics=self._metrics(vertex, counting),
            waiting=tuple(sorted({name for each in heads if each is not None for name in each.waiting})),
        )

    def _metrics(self, vertex: int, counting: list[Snapshot]) -> tuple[MetricFamily, ...]:
        """Returns the metrics of a task: those of the tasks whose counters it goes on with, and its part of its steps
        have spent, in whatever tasks."""
        width, steps = (
            self._plan.vertices[vertex].parallelism,
            {node.step for node in self._image.vertices[vertex].nodes},
        )
        own = united_families([each.metrics for each in counting])
        return spread_spending(own, [head.metrics for head in self._heads if head is not None], steps, width)

    def _counting(self, vertex: int, index: int) -> list[Snapshot]:
        """Returns the heads whose counters and metrics a task goes on with: its own, and for the first task those of
        tasks that do not run any more, so that no total falls."""
        now = self._plan.vertices[vertex]
        named = [place for place, was in enumerate(self._stored.vertices) if was.name == now.name]
        origins = named or self._origins(vertex)[:1]
        own, retired = [index], range(now.parallelism, len(self._heads))
        indexes = [*own, *retired] if index == 0 else own
        tasks = [
            self._firsts[place] + each
            for place in origins
            for each in indexes
            if each < self._stored.vertices[place].parallelism
        ]
        return [head for task in tasks if (head := self._heads[task]) is not None]

    def _one_head(self, origin: int, vertex: int, index: int) -> Snapshot | None:
        """Returns the head of the task of the same index; with another width, one made of the heads of all tasks."""
        tasks = self._old_tasks(origin, vertex, index)
        if len(tasks) == 1 and self._stored.vertices[origin].parallelism == self._plan.vertices[vertex].parallelism:
            return self._heads[tasks[0]]
        found = [head for task in tasks if (head := self._heads[task]) is not None]
        if not found:
            return None
        own = sorted(map(_own_ns, going := self._old_heads(origin, vertex)), key=lambda each: (each is not None, each))
        is_idle = all(head.event_time is not None and head.event_time.is_idle for head in going)
        position = b""
        if source := self._source_of.get(origin, ""):
            listed, width = len(self._image.splits[source]), self._plan.vertices[vertex].parallelism
            position = dealt_position([head.position for head in found], listed, index, width)
        return structs.replace(
            found[0],
            position=position,
            calls=(),
            waiting=(),  # otherwise the change is refused
            event_time=EventTime(own[0], is_idle, ()) if any(head.event_time for head in going) else None,
        )

    def _event_time(self, task: TaskId, head: Snapshot | None) -> EventTime | None:
        """Returns the event time of a task: its own if it has state, and what its senders had sent."""
        times = []
        for channel in self._plan.inputs[task]:
            sent = self._sent_by(channel.sender)
            if sent is not None and self._plan.edges[channel.edge].has_event_time:
                times.append(ChannelTime(channel.id, sent.reached_ns, sent.is_idle))
        own = head.event_time if head is not None else None
        if not times and own is None:
            return None
        return EventTime(own.own_ns if own else None, bool(own and own.is_idle), tuple(times))

    def _sent_by(self, sender: TaskId) -> ChannelTime | None:
        """Returns the watermark that a sender had sent; with another width, the least of those of all its tasks."""
        vertex, index = self._plan.vertex_of[sender], self._plan.index_of(sender)
        for origin in self._origins(vertex):
            tasks = self._old_tasks(origin, vertex, index)
            going = [task for task in tasks if not self._metadata.tasks[task].final] or tasks
            sent = [time for task in going if (time := self._sent.get(task)) is not None]
            if sent and len(sent) == len(going):
                reached = [time.reached_ns for time in sent if time.reached_ns is not None]
                least_ns = min(reached) if len(reached) == len(sent) else None
                return structs.replace(sent[0], reached_ns=least_ns, is_idle=all(time.is_idle for time in sent))
        return None


def _own_ns(head: Snapshot) -> int | None:
    return None if head.event_time is None else head.event_time.own_ns


def source_of(vertex: VertexShape, sources: tuple[str, ...]) -> str:
    """Returns the source at the head of a task, "" for other tasks; the name of the task if the source is unknown."""
    if FLAGS["is_source"] not in vertex.flags:
        return ""
    found = [source for source in sources if vertex.name == source or vertex.name.startswith(f"{source}-")]
    return max(found, key=len, default=vertex.name)


def sources_of(stored: PlanShape, sources: tuple[str, ...]) -> dict[int, str]:
    """Returns the source of each vertex of a stored plan that has one. ``sources``: the names of all."""
    return {number: name for number, vertex in enumerate(stored.vertices) if (name := source_of(vertex, sources))}


def head_of(entry: TaskEntry, read_object: ReadObject) -> Snapshot | None:
    """Returns the last snapshot of a task; None at the job's start. Raises: what ``read_object`` raises."""
    if not entry.objects:
        return None
    last = entry.objects[-1]
    return decode_snapshot(next(iter(read_object(last))), last)


def external_numbers(
    metadata: CheckpointMetadata, head_of_task: Callable[[TaskEntry], Snapshot | None]
) -> dict[str, int]:
    """Returns the number of the next row of each task with external output, by its name, also of those that did not run
    any more. ``head_of_task`` returns the last snapshot of a task.
    """
    stored, firsts = metadata.plan, first_tasks(metadata.plan)
    names = [f"{was.name}/{index}" for was in stored.vertices for index in range(was.parallelism)]
    found = dict(metadata.retired)
    for channel, (sender, is_external) in enumerate(_channels(stored, firsts)):
        if is_external:
            head = head_of_task(metadata.tasks[sender])
            found[names[sender]] = dict(head.outputs).get(ChannelId(channel), 0) if head is not None else 0
    return found


def write_moved(store: CheckpointStore, moved: Snapshot, kind: str) -> str:
    """Writes a snapshot that takes over state; returns its name. Raises: StoreFailed."""
    # Its name has this term: none of the tasks whose state it takes over can write to it.
    name = name_of_snapshot(structs.replace(moved, incarnation=Incarnation(view_number(store.term, 0))), kind)
    return store.write_object(name, [encode_snapshot(moved)])


def _channels(shape: PlanShape, firsts: list[int]) -> list[tuple[int, bool]]:
    """Returns the sender of each channel of a stored plan, in the order of ``Plan.channels``, and whether the channel
    leaves the job.
    """
    number = {vertex.name: place for place, vertex in enumerate(shape.vertices)}
    found: list[tuple[int, bool]] = []
    for edge in shape.edges:
        place = number[edge.source]
        is_single = not edge.target or edge.partitioning == str(Partitioning.FORWARD)
        copies = 1 if is_single else shape.vertices[number[edge.target]].parallelism
        for index in range(shape.vertices[place].parallelism):
            found += [(firsts[place] + index, not edge.target)] * copies
    return found
