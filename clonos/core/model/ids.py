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

ThreadId = NewType("ThreadId", int)
"""A thread that runs a task in a slot: drawn by the slot, never used twice there. A shadow's may become that of an
incarnation."""

CheckpointId = NewType("CheckpointId", int)
"""Label of a checkpoint, of its barrier, and of the epoch behind that barrier. 0 is the job's start."""

COORDINATOR = SlotId(0)


def journal_of(task: int) -> TaskId:
    """The number under which a source's journal is kept beside the causal logs: that of no task."""
    return TaskId(-2 - task)


def view_number(term: int, n: int) -> ViewNumber:
    """Number of view ``n`` of a term."""
    return ViewNumber(term << 32 | n)


def term_of(number: int) -> int:
    """The term of a view, or of the view that began an incarnation."""
    return number >> 32


def view_name(number: int) -> str:
    """A view or an incarnation as people read it: ``term.n``."""
    return f"{number >> 32}.{number & 0xFFFFFFFF}"
