"""The physical plan: vertices, tasks, channels, and who holds whose causal log.

Pure data, equal in every process. The functions that a vertex runs travel beside it, never inside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from clonos.core.model.ids import ChannelId, LogId, TaskId, log_of


class Partitioning(StrEnum):
    """How an edge spreads the elements of one task over the tasks of the next vertex."""

    FORWARD = "forward"  # i -> i, equal parallelism
    HASH = "hash"  # by key group
    REBALANCE = "rebalance"  # element k of a task goes to receiver k mod n
    BROADCAST = "broadcast"  # every element to every task
    OUTSIDE = "outside"  # to an immediate sink's outside: one channel a task


@dataclass(frozen=True, slots=True)
class Vertex:
    """One operator, or a chain of fused operators."""

    name: str  # unique in the job, stable between versions of it: state is found by it
    parallelism: int
    is_source: bool = False
    has_effects: bool = False  # acts on the outside before a checkpoint completes: needs a keeper
    is_transactional: bool = False  # prepares output that the completed checkpoint commits
    is_journalled: bool = False  # a source that cannot be re-read: what it takes is kept before it is read
    is_watching: bool = False  # a source that finds further splits while it runs: it ends only when it is stopped
    is_hot: bool = False  # its standbys follow it step by step

    @property
    def may_be_hot(self) -> bool:
        """Whether nothing that a life of it does leaves the job, or comes from where nobody can ask again."""
        return not (self.has_effects or self.is_transactional or self.is_journalled)


@dataclass(frozen=True, slots=True)
class Edge:
    """All channels between two vertices; ``port`` is the output of the source vertex's chain that feeds it.

    ``giver``: the step whose results it carries, for what is said of them.
    """

    source: int
    target: int | None  # None: it leaves the job
    partitioning: Partitioning
    port: int
    giver: str = ""

    def __post_init__(self) -> None:
        assert (self.target is None) == (self.partitioning is Partitioning.OUTSIDE), self

    @property
    def target_vertex(self) -> int:
        """The vertex that an edge inside the job leads to."""
        assert self.target is not None, self
        return self.target


@dataclass(frozen=True, slots=True)
class Channel:
    """The FIFO from ``sender`` to ``receiver``; ``edge`` is an index into ``Plan.edges``."""

    id: ChannelId
    edge: int
    sender: TaskId
    receiver: TaskId | None  # None: it leaves the job

    @property
    def receiving_task(self) -> TaskId:
        """The receiver of a channel inside the job."""
        assert self.receiver is not None, self
        return self.receiver


@dataclass(frozen=True)
class Plan:
    """A job as tasks and channels. Vertices stand in topological order, tasks in the order of their vertices."""

    job_name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    max_parallelism: int = 128
    sharing_depth: int | None = None  # hops downstream; None is full
    replicas: int | None = None  # sharing stops once so many domains besides the own one hold a log; None: never

    @cached_property
    def first_task(self) -> tuple[int, ...]:
        """Per vertex, the number of its first task."""
        firsts, total = [], 0
        for vertex in self.vertices:
            firsts.append(total)
            total += vertex.parallelism
        return tuple(firsts)

    @cached_property
    def tasks(self) -> tuple[TaskId, ...]:
        """All tasks, ascending."""
        return tuple(TaskId(i) for i in range(sum(v.parallelism for v in self.vertices)))

    @cached_property
    def vertex_of(self) -> tuple[int, ...]:
        """Per task, the index of its vertex."""
        return tuple(i for i, v in enumerate(self.vertices) for _ in range(v.parallelism))

    def index_of(self, task: TaskId) -> int:
        """A task's index within its vertex."""
        return task - self.first_task[self.vertex_of[task]]

    def task_name(self, task: int) -> str:
        """A task as people read it: ``count/1``."""
        return f"{self.vertices[self.vertex_of[task]].name}/{self.index_of(TaskId(task))}"

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """All channels: by edge, then sender, then receiver."""
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

    def _tasks_of(self, vertex: int) -> range:
        first = self.first_task[vertex]
        return range(first, first + self.vertices[vertex].parallelism)

    @cached_property
    def inputs(self) -> tuple[tuple[Channel, ...], ...]:
        """Per task, the channels that it receives, ascending."""
        found: list[list[Channel]] = [[] for _ in self.tasks]
        for channel in self.channels:
            if channel.receiver is not None:
                found[channel.receiver].append(channel)
        return tuple(tuple(channels) for channels in found)

    @cached_property
    def outputs(self) -> tuple[tuple[Channel, ...], ...]:
        """Per task, the channels that it sends, ascending; those to the outside too."""
        found: list[list[Channel]] = [[] for _ in self.tasks]
        for channel in self.channels:
            found[channel.sender].append(channel)
        return tuple(tuple(channels) for channels in found)

    @cached_property
    def distances(self) -> tuple[dict[TaskId, int], ...]:
        """Per task, every task downstream of it with the hops of the shortest path. Itself at 0."""
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
        """Who gets from it; over an edge from every task to every task only once, for then ``spread`` has it."""
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
        """Per vertex, the edges to other vertices."""
        inner = [(number, edge) for number, edge in enumerate(self.edges) if edge.target is not None]
        return tuple(tuple(n for n, edge in inner if edge.source == vertex) for vertex in range(len(self.vertices)))

    def _within_depth(self, hops: int) -> bool:
        return self.sharing_depth is None or hops <= self.sharing_depth

    @cached_property
    def feeding(self) -> frozenset[TaskId]:
        """Tasks that send to other tasks: somebody depends on their logs."""
        return frozenset(channel.sender for channel in self.channels if channel.receiver is not None)

    @cached_property
    def holders(self) -> tuple[tuple[TaskId, ...], ...]:
        """Per task, the other tasks that hold a replica of its log, ascending."""
        return tuple(
            tuple(sorted(t for t, hops in reached.items() if t != task and self._within_depth(hops)))
            for task, reached in enumerate(self.distances)
        )

    @cached_property
    def held(self) -> tuple[tuple[LogId, ...], ...]:
        """Per task, the logs of other tasks that it holds, ascending."""
        found: list[list[LogId]] = [[] for _ in self.tasks]
        for owner, holders in enumerate(self.holders):
            for holder in holders:
                found[holder].append(log_of(TaskId(owner)))
        return tuple(tuple(logs) for logs in found)

    def asked_for(self, task: TaskId) -> tuple[LogId, ...]:
        """The logs that its successor asks for: its own, and those that it holds unless their owners send them anew."""
        return (log_of(task),) if self.replicas is not None else (log_of(task), *self.held[task])

    @cached_property
    def shared_on(self) -> tuple[tuple[LogId, ...], ...]:
        """Per channel, the logs that travel on it: those that the sender has and the receiver shall hold."""
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
    def kept(self) -> tuple[TaskId, ...]:
        """Tasks with effects outside or with a journal, which need a keeper, ascending."""
        return tuple(t for t in self.tasks if self.vertices[self.vertex_of[t]].has_effects or self.is_journalled(t))

    @cached_property
    def hot(self) -> frozenset[TaskId]:
        """Tasks whose standbys follow hot."""
        return frozenset(t for t in self.tasks if self.vertices[self.vertex_of[t]].is_hot)

    def is_journalled(self, task: TaskId) -> bool:
        """Whether a task is a source that cannot be re-read."""
        return self.vertices[self.vertex_of[task]].is_journalled
