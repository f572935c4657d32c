"""Physical plan of a job: vertices, edges, tasks, channels, and which task holds whose causal log.

A plan is pure data and equal in every process. The functions of the vertices travel beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from clonos.core.model.ids import ChannelId, LogId, TaskId, log_of
from clonos.core.model.options import Options

LIMIT_KIND = "limit"
"""Kind of a step that lets a limited number of records through."""


class Partitioning(StrEnum):
    """Rule by which an edge distributes the elements of one task over the tasks of the next vertex."""

    FORWARD = "forward"  # task i to task i; both vertices have the same parallelism
    HASH = "hash"  # by key group
    REBALANCE = "rebalance"  # element k of a task goes to task k mod n
    BROADCAST = "broadcast"  # every element to every task
    EXTERNAL = "external"  # to the external system of an immediate sink: one channel per task


@dataclass(frozen=True, slots=True)
class StatefulStep:
    """Step with state, by what stored state has to fit: its kind, and properties such as ``("window", "5s")``."""

    name: str
    kind: str
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementRule:
    """Place of the tasks of a vertex. ``host``: name of a host or of a failure domain; "" for any.

    ``on_driver``: on the host of the driver. ``is_exclusive``: each in a process without other tasks.
    """

    host: str = ""
    on_driver: bool = False
    is_exclusive: bool = False


ANYWHERE = PlacementRule()


@dataclass(frozen=True, slots=True)
class Vertex:
    """Operator, or chain of fused operators, of the job graph."""

    name: str  # unique in the job and stable between its versions, because state is stored under it
    parallelism: int
    is_source: bool = False
    has_effects: bool = False  # acts on an external system before a checkpoint completes, so its tasks need keepers
    is_transactional: bool = False  # prepares output, which is committed when the checkpoint completes
    is_journalled: bool = (
        False  # a source that cannot be read again: its input is replicated in a journal before it is read
    )
    reads_columns: bool = False  # a source whose records are columns
    is_watching: bool = False  # a source that finds new splits while it runs; it ends only when the job is stopped
    is_timed: bool = False  # a source that makes watermarks
    is_acknowledged: bool = False  # a source that is told which of its input no restart reads again
    becomes_idle: bool = False  # a source that makes watermarks, whose splits are idle without records
    is_hot: bool = False  # its standbys run a shadow
    has_calls: bool = False  # makes calls beside its steps, whose outcomes are in the log
    logs_calls: bool = False  # the log has each call inside these calls, too
    steps: tuple[StatefulStep, ...] = ()  # those that keep state
    outputs: tuple[StatefulStep, ...] = ()  # its sinks by number: what they are, and where they write
    rule: PlacementRule = ANYWHERE  # where its tasks run
    declared: int = 0  # number of tasks that the code gives it; 0: ``parallelism``
    fixed: str = ""  # why the number of its tasks cannot change, as the end of a sentence; "" if it can

    @property
    def may_be_hot(self) -> bool:
        """Whether its tasks may have shadows, because nothing leaves the job from them and they keep no journal."""
        return not (self.has_effects or self.is_transactional or self.is_journalled)


@dataclass(frozen=True, slots=True)
class Edge:
    """Edge of the job graph: every channel between two vertices.

    ``port`` is the output of the source vertex's chain that feeds the edge. ``giver`` is the step whose results it
    carries, for messages. Without ``has_event_time`` its channels do not count for the watermark of the receivers.
    """

    source: int
    target: int | None  # None: the edge leaves the job
    partitioning: Partitioning
    port: int
    giver: str = ""
    has_event_time: bool = True

    def __post_init__(self) -> None:
        assert (self.target is None) == (self.partitioning is Partitioning.EXTERNAL), self

    @property
    def target_vertex(self) -> int:
        """Index of the target vertex of an edge inside the job."""
        assert self.target is not None, self
        return self.target


@dataclass(frozen=True, slots=True)
class Channel:
    """FIFO from the task ``sender`` to the task ``receiver``; ``edge`` is an index into ``Plan.edges``."""

    id: ChannelId
    edge: int
    sender: TaskId
    receiver: TaskId | None  # None: the channel leaves the job

    @property
    def receiving_task(self) -> TaskId:
        """Receiver of a channel inside the job."""
        assert self.receiver is not None, self
        return self.receiver


@dataclass(frozen=True)
class Plan:
    """Job as tasks and channels. Vertices are in topological order, tasks in the order of their vertices."""

    job_name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    max_parallelism: int = 128
    sharing_depth: int | None = None  # hops downstream; None is full
    replicas: int | None = None  # other domains that must hold a log before sharing of it stops; None: it never stops

    @cached_property
    def first_task(self) -> tuple[int, ...]:
        """First task of each vertex."""
        firsts, total = [], 0
        for vertex in self.vertices:
            firsts.append(total)
            total += vertex.parallelism
        return tuple(firsts)

    @cached_property
    def tasks(self) -> tuple[TaskId, ...]:
        """Tasks, ascending."""
        return tuple(TaskId(i) for i in range(sum(v.parallelism for v in self.vertices)))

    @cached_property
    def vertex_of(self) -> tuple[int, ...]:
        """Index of the vertex of each task."""
        return tuple(i for i, v in enumerate(self.vertices) for _ in range(v.parallelism))

    def index_of(self, task: TaskId) -> int:
        """Returns the index of a task within its vertex."""
        return task - self.first_task[self.vertex_of[task]]

    def task_name(self, task: int) -> str:
        """Returns the name of a task for messages: ``count/1``."""
        return f"{self.vertices[self.vertex_of[task]].name}/{self.index_of(TaskId(task))}"

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """Channels, ordered by edge, then sender, then receiver."""
        found: list[Channel] = []

        def add(edge: int, sender: int, receiver: int | None) -> None:
            to = None if receiver is None else TaskId(receiver)
            found.append(Channel(ChannelId(len(found)), edge, TaskId(sender), to))

        for number, edge in enumerate(self.edges):
            senders = self._tasks_of(edge.source)
            for sender in senders:
                if edge.target is None:
                    add(number, sender, None)
                elif edge.partitioning is Partitioning.FORWARD:
                    add(number, sender, self.first_task[edge.target] + sender - senders[0])
                else:
                    for receiver in self._tasks_of(edge.target):
                        add(number, sender, receiver)
        return tuple(found)

    @property
    def widths(self) -> dict[str, int]:
        """Number of tasks of each vertex, by its name."""
        return {vertex.name: vertex.parallelism for vertex in self.vertices}

    def can_have(self, widths: Mapping[str, int]) -> bool:
        """Returns whether these are numbers of tasks of vertices of this plan."""
        known = {vertex.name for vertex in self.vertices}
        return all(name in known and width > 0 for name, width in widths.items())

    def with_widths(self, widths: Mapping[str, int]) -> Plan:
        """Returns the plan in which the vertices of these names have other numbers of tasks, and so have those that
        forward edges connect with them.
        """
        number_of = {vertex.name: number for number, vertex in enumerate(self.vertices)}
        width_of = {self.scaling_group[number_of[name]]: width for name, width in widths.items()}
        vertices = tuple(
            replace(vertex, parallelism=width_of.get(group, vertex.parallelism))
            for vertex, group in zip(self.vertices, self.scaling_group, strict=True)
        )
        return replace(self, vertices=vertices)

    def task_named(self, name: str) -> TaskId | None:
        """Returns the task of a name, such as ``count/1``; None if the plan has none."""
        return self._tasks_by_name.get(name)

    @cached_property
    def _tasks_by_name(self) -> dict[str, TaskId]:
        return {self.task_name(task): task for task in self.tasks}

    @cached_property
    def scaling_group(self) -> tuple[int, ...]:
        """For each vertex, the first of those that have its width, because forward edges connect them."""
        group = list(range(len(self.vertices)))
        for edge in self.edges:
            if edge.partitioning is Partitioning.FORWARD:
                ends = group[edge.source], group[edge.target_vertex]
                group = [min(ends) if each in ends else each for each in group]
        return tuple(group)

    def _tasks_of(self, vertex: int) -> range:
        first = self.first_task[vertex]
        return range(first, first + self.vertices[vertex].parallelism)

    @cached_property
    def inputs(self) -> tuple[tuple[Channel, ...], ...]:
        """Input channels of each task, ascending."""
        found: list[list[Channel]] = [[] for _ in self.tasks]
        for channel in self.channels:
            if channel.receiver is not None:
                found[channel.receiver].append(channel)
        return tuple(tuple(channels) for channels in found)

    @cached_property
    def outputs(self) -> tuple[tuple[Channel, ...], ...]:
        """Output channels of each task, ascending, including those that leave the job."""
        found: list[list[Channel]] = [[] for _ in self.tasks]
        for channel in self.channels:
            found[channel.sender].append(channel)
        return tuple(tuple(channels) for channels in found)

    @cached_property
    def distances(self) -> tuple[dict[TaskId, int], ...]:
        """Tasks downstream of each task with the hops of the shortest path; 0 hops for the task itself."""
        found = []
        for task in self.tasks:
            reached = {task: 0}
            queue, spread = deque([task]), set[int]()
            while queue:
                here = queue.popleft()
                for receiver in self._next_tasks(here, spread):
                    if receiver not in reached:
                        reached[receiver] = reached[here] + 1
                        queue.append(receiver)
            found.append(reached)
        return tuple(found)

    def _next_tasks(self, task: TaskId, spread: set[int]) -> Iterator[TaskId]:
        """Yields the receivers of a task.

        An edge that connects all tasks with all is followed once only; ``spread`` remembers it.
        """
        vertex = self.vertex_of[task]
        for number in self._edges_from[vertex]:
            edge = self.edges[number]
            if edge.partitioning is Partitioning.FORWARD:
                yield TaskId(self.first_task[edge.target_vertex] + task - self.first_task[vertex])
            elif number not in spread:
                spread.add(number)
                yield from map(TaskId, self._tasks_of(edge.target_vertex))

    @cached_property
    def _edges_from(self) -> tuple[tuple[int, ...], ...]:
        """Edges inside the job that leave each vertex."""
        inner = [(number, edge) for number, edge in enumerate(self.edges) if edge.target is not None]
        return tuple(tuple(n for n, edge in inner if edge.source == vertex) for vertex in range(len(self.vertices)))

    @cached_property
    def receivers(self) -> tuple[dict[int, int], ...]:
        """Number of tasks that a task of each vertex sends to, by output port, at the edges inside the job."""
        found: tuple[dict[int, int], ...] = tuple({} for _ in self.vertices)
        for edge in self.edges:
            if edge.target is not None:
                found[edge.source][edge.port] = self.vertices[edge.target].parallelism
        return found

    def _within_depth(self, hops: int) -> bool:
        return self.sharing_depth is None or hops <= self.sharing_depth

    @cached_property
    def feeding(self) -> frozenset[TaskId]:
        """Tasks that send to other tasks, which therefore depend on their logs."""
        return frozenset(channel.sender for channel in self.channels if channel.receiver is not None)

    @cached_property
    def holders(self) -> tuple[tuple[TaskId, ...], ...]:
        """Other tasks that hold a replica of each task's log, ascending."""
        return tuple(
            tuple(sorted(t for t, hops in reached.items() if t != task and self._within_depth(hops)))
            for task, reached in enumerate(self.distances)
        )

    @cached_property
    def held(self) -> tuple[tuple[LogId, ...], ...]:
        """Logs of other tasks that each task holds, ascending."""
        found: list[list[LogId]] = [[] for _ in self.tasks]
        for owner, holders in enumerate(self.holders):
            for holder in holders:
                found[holder].append(log_of(TaskId(owner)))
        return tuple(tuple(logs) for logs in found)

    def logs_requested_by(self, task: TaskId) -> tuple[LogId, ...]:
        """Returns the logs that a successor of the task requests: its own, and with unlimited sharing also those that
        it should hold.

        With ``replicas=f`` the owners of the other logs send them again.
        """
        return (log_of(task),) if self.replicas is not None else (log_of(task), *self.held[task])

    @cached_property
    def shared_on(self) -> tuple[tuple[LogId, ...], ...]:
        """Logs that travel on each channel: logs that the sender has and the receiver should hold."""
        found: list[tuple[LogId, ...]] = []
        for channel in self.channels:
            has = {log_of(channel.sender), *self.held[channel.sender]}
            wanted = () if channel.receiver is None else self.held[channel.receiver]
            found.append(tuple(log for log in wanted if log in has))
        return tuple(found)

    @cached_property
    def sources(self) -> tuple[TaskId, ...]:
        """Tasks of source vertices, ascending."""
        return tuple(t for t in self.tasks if self.vertices[self.vertex_of[t]].is_source)

    @cached_property
    def timed_sources(self) -> tuple[TaskId, ...]:
        """Tasks of sources that make watermarks, ascending."""
        timed = [number for number, vertex in enumerate(self.vertices) if vertex.is_timed]
        return tuple(TaskId(t) for number in timed for t in self._tasks_of(number))

    def has_drift_limit(self, options: Options) -> bool:
        """Returns whether the coordinator limits the drift between the sources."""
        return options.watermark_drift_max_ns > 0 and len(self.timed_sources) > 1

    @cached_property
    def limited(self) -> tuple[TaskId, ...]:
        """Tasks with a step that lets a limited number of records through, ascending."""
        limited = [any(step.kind == LIMIT_KIND for step in vertex.steps) for vertex in self.vertices]
        return tuple(t for t in self.tasks if limited[self.vertex_of[t]])

    @cached_property
    def with_keepers(self) -> tuple[TaskId, ...]:
        """Tasks that need a keeper because they have external effects or a journal, ascending."""
        return tuple(t for t in self.tasks if self.vertices[self.vertex_of[t]].has_effects or self.is_journalled(t))

    @cached_property
    def with_answers(self) -> frozenset[TaskId]:
        """Tasks without external effects that have keepers too, because no other task holds the outcomes of their
        calls, or not soon: without the log all calls since the last checkpoint are made again."""
        calling = [number for number, vertex in enumerate(self.vertices) if vertex.has_calls]
        return frozenset(
            TaskId(t)
            for v in calling
            for t in self._tasks_of(v)
            if (self.vertices[v].logs_calls or not self.holders[t]) and t not in self.with_keepers
        )

    @cached_property
    def sends_outcomes(self) -> frozenset[TaskId]:
        """Tasks whose keepers get the outcomes of calls at once, although no effect waits for them."""
        logging = [number for number, vertex in enumerate(self.vertices) if vertex.logs_calls]
        return self.with_answers.union(TaskId(t) for v in logging for t in self._tasks_of(v))

    @cached_property
    def all_with_keepers(self) -> frozenset[TaskId]:
        """Tasks that have keepers, wherever sharing stops."""
        return self.with_answers.union(self.with_keepers)

    @cached_property
    def hot(self) -> frozenset[TaskId]:
        """Tasks whose standbys run a shadow."""
        return frozenset(t for t in self.tasks if self.vertices[self.vertex_of[t]].is_hot)

    def is_journalled(self, task: TaskId) -> bool:
        """Returns whether a task is a source that cannot be read again."""
        return self.vertices[self.vertex_of[task]].is_journalled


def refusals(plan: Plan, widths: Mapping[str, int]) -> tuple[str, ...]:
    """Returns why the vertices of these names cannot have these numbers of tasks, in words; nothing if they can.

    Vertices that forward edges connect have one width, so a vertex whose width cannot change binds the others.
    """
    return tuple(_refusals(plan, widths))


def _refusals(plan: Plan, widths: Mapping[str, int]) -> Iterator[str]:
    number_of = {vertex.name: number for number, vertex in enumerate(plan.vertices)}
    width_of: dict[int, int] = {}
    first_of: dict[int, str] = {}
    for name, width in widths.items():
        number = number_of[name]
        if not 1 <= width <= plan.max_parallelism:
            yield f'"{name}" cannot have {width} tasks: 1 to {plan.max_parallelism} (max_parallelism) are possible'
            continue
        group = plan.scaling_group[number]
        first = first_of.setdefault(group, name)
        if (other := width_of.setdefault(group, width)) != width:
            yield (
                f'"{first}" cannot have {other} tasks and "{name}" {width}: their tasks are connected one to one,'
                " so that both have one number"
            )
    for vertex, group in zip(plan.vertices, plan.scaling_group, strict=True):
        if vertex.fixed and width_of.get(group, vertex.parallelism) != vertex.parallelism:
            yield f'"{vertex.name}" keeps its number of tasks, {vertex.parallelism}: {vertex.fixed}'
