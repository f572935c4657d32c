"""Names of things: every identity is an int, so that it sorts and costs nothing on the wire."""

from __future__ import annotations

from typing import NewType

TaskId = NewType("TaskId", int)
"""One parallel instance of a vertex: dense number in the order of the plan. ``Plan.task_name`` spells it."""

ChannelId = NewType("ChannelId", int)
"""The FIFO from one task to another, or from a task to the outside: dense number in the order of the plan."""

SlotId = NewType("SlotId", int)
"""A process that hosts tasks: 63 random bits drawn at its birth. ``COORDINATOR`` is the coordinator's."""

ViewNumber = NewType("ViewNumber", int)
"""(term, n) as one growing int: ``term << 32 | n``."""

Incarnation = NewType("Incarnation", int)
"""One life of a task: the number of the view that began it. Grows, never used twice."""

LogId = NewType("LogId", int)
"""A causal log (``log_of``) or the journal of a source (``journal_of``): what replicas are copies of."""

_JOURNALS = 1 << 32  # journals are numbered from here on, behind all tasks

ThreadId = NewType("ThreadId", int)
"""A thread that runs a task in a slot: drawn by the slot, never used twice there. A shadow's may become that of an
incarnation."""

CheckpointId = NewType("CheckpointId", int)
"""Label of a checkpoint, of its barrier, and of the epoch behind that barrier. 0 is the job's start."""

COORDINATOR = SlotId(0)


def log_of(task: TaskId) -> LogId:
    """The causal log of a task."""
    return LogId(task)


def journal_of(task: TaskId) -> LogId:
    """The journal of a source, which its keepers hold beside the causal logs."""
    return LogId(_JOURNALS + task)


def owner_of(log: LogId) -> TaskId:
    """The task whose log, or whose journal, it is."""
    return TaskId(log % _JOURNALS)


def log_name(log: LogId) -> str:
    """A log as people read it."""
    return f"the {'causal log' if log == log_of(owner_of(log)) else 'journal'} of task {owner_of(log)}"


def view_number(term: int, n: int) -> ViewNumber:
    """Number of view ``n`` of a term."""
    return ViewNumber(term << 32 | n)


def term_of(number: int) -> int:
    """The term of a view, or of the view that began an incarnation."""
    return number >> 32


def view_name(number: int) -> str:
    """A view or an incarnation as people read it: ``term.n``."""
    return f"{number >> 32}.{number & 0xFFFFFFFF}"
