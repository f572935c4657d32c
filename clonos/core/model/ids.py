"""Ids of tasks, channels, slots, views and logs. Each is an int, which sorts and is cheap on the wire."""

from __future__ import annotations

from typing import NewType

TaskId = NewType("TaskId", int)
"""Id of a task, one parallel instance of a vertex: a dense number in the order of the plan. ``Plan.task_name`` spells
it.
"""

ChannelId = NewType("ChannelId", int)
"""Id of a channel from one task to another, or to an external system: a dense number in the order of the plan."""

SlotId = NewType("SlotId", int)
"""Id of a slot: 63 random bits drawn when its process starts. ``COORDINATOR`` stands for the coordinator."""

ViewNumber = NewType("ViewNumber", int)
"""Number of a view, (term, n) as one growing int: ``term << 32 | n``."""

Incarnation = NewType("Incarnation", int)
"""Number of one life of a task: the number of the view that began it. It grows and is never used twice."""

LogId = NewType("LogId", int)
"""Id of a causal log (``log_of``) or of the journal of a source (``journal_of``)."""

_JOURNALS = 1 << 32  # first number of a journal; causal logs have the numbers below

ThreadId = NewType("ThreadId", int)
"""Id of a thread that runs a task, drawn by its slot and never used twice there. A promoted shadow keeps its thread's
id.
"""

CheckpointId = NewType("CheckpointId", int)
"""Number of a checkpoint, of its barrier, and of the epoch after that barrier. 0 is the start of the job."""

COORDINATOR = SlotId(0)


def log_of(task: TaskId) -> LogId:
    """Returns the id of a task's causal log."""
    return LogId(task)


def journal_of(task: TaskId) -> LogId:
    """Returns the id of a source's journal, which its keepers hold beside the causal logs."""
    return LogId(_JOURNALS + task)


def owner_of(log: LogId) -> TaskId:
    """Returns the task that writes a log or a journal."""
    return TaskId(log % _JOURNALS)


def log_name(log: LogId) -> str:
    """Returns the name of a log for messages: ``the causal log of task 3``."""
    return f"the {'causal log' if log == log_of(owner_of(log)) else 'journal'} of task {owner_of(log)}"


def view_number(term: int, n: int) -> ViewNumber:
    """Returns the number of view ``n`` of a term."""
    return ViewNumber(term << 32 | n)


def term_of(number: int) -> int:
    """Returns the term of a view, or of the view that began an incarnation."""
    return number >> 32


def view_name(number: int) -> str:
    """Returns the name of a view or an incarnation for messages: ``term.n``."""
    return f"{number >> 32}.{number & 0xFFFFFFFF}"
