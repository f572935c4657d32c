"""Excerpt of a failed world's event log: the events of the tasks that a complaint is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from clonos.core.model.ids import ChannelId, TaskId

if TYPE_CHECKING:
    from clonos_chaos.swarm.world import World

LINES_MAX: Final = 60

_NUMBER = re.compile(r"(?<![\d.])\d+(?![\d.]\d)")
_TASKS = re.compile(r"with tasks \[([\d, ]*)\]")
_NUMBERED = re.compile(r"\btask (\d+)\b")
_CHANNEL = re.compile(r"\bchannel (\d+)\b")


def tasks_concerned(world: World, complaint: str) -> set[TaskId]:
    """Returns the tasks that a complaint names, or whose channel it names; all tasks where it names none."""
    plan = world.plan
    found = {task for task in plan.tasks if re.search(rf"\b{re.escape(plan.task_name(task))}\b", complaint)}
    found |= {TaskId(int(number)) for number in _NUMBERED.findall(complaint) if int(number) < len(plan.tasks)}
    for number in _CHANNEL.findall(complaint):
        channel = plan.channels[ChannelId(int(number))]
        found |= {task for task in (channel.sender, channel.receiver) if task is not None}
    return found or set(plan.tasks)


def excerpt_of(world: World, complaint: str) -> str:
    """Returns the last lines about the tasks concerned, about faults and about the job."""
    concerned = tasks_concerned(world, complaint)
    return "\n".join([line for line in world.event_log if _is_about(world, line, concerned)][-LINES_MAX:])


def with_short_slots(world: World, text: str) -> str:
    """Replaces slot ids by s1, s2, ... in the order in which they appear."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"s{len(names) + 1}") if int(found[0]) in world.slots else found[0]

    return _NUMBER.sub(named, text)


def _is_about(world: World, line: str, concerned: set[TaskId]) -> bool:
    injected = _TASKS.search(line)
    if injected is not None:
        return True  # the processes hit by a fault may have held what the task needed
    numbered = _NUMBERED.search(line)
    if numbered is not None:
        return TaskId(int(numbered[1])) in concerned
    named = [task for task in world.plan.tasks if f" {world.plan.task_name(task)} " in line]
    return not named or bool(concerned.intersection(named))
