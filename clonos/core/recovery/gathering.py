"""Gathering: a recovering task asks every holder for its log, and for replicas that it should hold (protocol 6.4, 6.5).

Answers are remembered by holder, never counted. All are prefixes of one log, so the longest contains the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from clonos.core.log.causal_log import check_overlap
from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import LogId, SlotId, TaskId, ViewNumber, log_of
from clonos.core.model.plan import Plan
from clonos.core.wire.authorization import sender_name
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import LogReply


class Holder(NamedTuple):
    """Possible holder of the log: a task, or (``is_keeper``) the keeper of ``task`` in ``slot``."""

    task: TaskId
    is_keeper: bool
    slot: SlotId


@dataclass(frozen=True, slots=True)
class Gathering:
    """Replies of the holders so far, and those that have not replied under ``view``. Another view asks all again."""

    view: ViewNumber
    waiting_for: frozenset[Holder]
    replies: tuple[tuple[Holder, tuple[Delta, ...]], ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every holder has answered."""
        return not self.waiting_for


def holders_of(plan: Plan, view: View, task: TaskId) -> tuple[Holder, ...]:
    """Returns the holders of the task's log that have a slot in ``view``; an incarnation without a slot has nothing
    yet."""
    tasks = plan.holders[task]
    found = [Holder(t, False, slot) for t in tasks if (slot := view.placements[t].slot) is not None]
    # Where sharing stops every task has keepers, of its own log and of others that are not covered.
    for keeper_task in [t for t in (task, *tasks) if plan.replicas is not None or t in plan.all_with_keepers]:
        found += keepers_of(view, keeper_task)
    return tuple(found)


def keepers_of(view: View, task: TaskId) -> tuple[Holder, ...]:
    """Returns the keepers of one task in ``view``."""
    return tuple(Holder(task, True, slot) for slot in view.placements[task].keepers)


def begin_gathering(plan: Plan, view: View, task: TaskId) -> Gathering:
    """Asks all holders; in a new generation, where there is no log, only keepers of the journal."""
    if view.placements[task].is_fresh:
        holders = keepers_of(view, task) if plan.is_journalled(task) else ()
    else:
        holders = holders_of(plan, view, task)
    return Gathering(view.number, frozenset(holders))


def ask_again(state: Gathering, before: Gathering) -> Gathering:
    """Asks all holders again under another view; what was answered before stays true."""
    return Gathering(state.view, state.waiting_for, before.replies)


def check_reply(plan: Plan, reply: LogReply, base_bytes: int) -> None:
    """Checks that a copy of the asker's log does not begin after the checkpoint that it restores.

    No holder has dropped that much. With ``replicas=f``, copies are pieces, which begin anywhere.
    Raises: MessageMalformed.
    """
    for delta in reply.replicas if plan.replicas is None else ():
        if delta.log == log_of(reply.task) and delta.offset_bytes > base_bytes:
            problem = f"its copy of the log of task {reply.task} begins at {delta.offset_bytes}, after {base_bytes}"
            raise MessageMalformed(sender_name(reply.slot), problem)


def collect_reply(state: Gathering, view: ViewNumber, holder: Holder, deltas: tuple[Delta, ...]) -> Gathering:
    """Takes an answer in, unless it belongs to an earlier question or was there already."""
    if view != state.view or holder not in state.waiting_for:
        return state
    return Gathering(state.view, state.waiting_for - {holder}, (*state.replies, (holder, deltas)))


def choose_longest(copies: list[Delta]) -> Delta:
    """Returns the copy that contains all others."""
    return max(copies, key=lambda delta: (delta.offset_bytes + len(delta.data), -delta.offset_bytes))


def join_pieces(base_bytes: int, log: LogId, pieces: list[Delta]) -> tuple[bytes, int]:
    """Joins a log from ``base_bytes`` up to the first byte that no piece has; returns it, and where the furthest piece
    ends.

    With ``replicas=f``, a holder may have only a piece. Pieces after a hole are useless, and the log is lost.
    """
    joined = bytearray()
    for piece in sorted(pieces, key=lambda delta: delta.offset_bytes):
        end_bytes = base_bytes + len(joined)
        check_overlap(log, base_bytes, joined, piece.offset_bytes, piece.data)
        if piece.offset_bytes <= end_bytes < piece.offset_bytes + len(piece.data):
            joined += piece.data[end_bytes - piece.offset_bytes :]
    furthest = max((piece.offset_bytes + len(piece.data) for piece in pieces if piece.data), default=base_bytes)
    return bytes(joined), furthest


def joined_logs(state: Gathering, task: TaskId, base_bytes: int) -> tuple[dict[LogId, Delta], int]:
    """Returns, with ``replicas=f``, the log of ``task`` from all pieces, other logs, and where the furthest piece ends.

    Other logs come from a keeper or a shadow: they are the causes of this one, which nobody else may have.
    """
    own = log_of(task)
    pieces = [delta for _, deltas in state.replies for delta in deltas if delta.log == own]
    data, furthest = join_pieces(base_bytes, own, pieces)
    return {**gathered_logs(state), own: Delta(own, base_bytes, False, data)}, furthest


def gathered_logs(state: Gathering) -> dict[LogId, Delta]:
    """Returns the longest copy of each log. Copies that differ where they overlap are a divergence."""
    copies: dict[LogId, list[Delta]] = {}
    for _, deltas in state.replies:
        for delta in deltas:
            copies.setdefault(delta.log, []).append(delta)
    found = {log: choose_longest(copies[log]) for log in sorted(copies)}
    for log, longest in found.items():
        for copy in copies[log]:
            check_overlap(log, longest.offset_bytes, longest.data, copy.offset_bytes, copy.data)
    return found


def has_replicated_log(state: Gathering, view: View, task: TaskId) -> bool:
    """Returns whether a keeper of the task has what led to all output that has left in this generation.

    Output leaves when all keepers have its log. So a keeper since the generation's begin has it, if there is any; one
    that was named later has it if it has the log at all.
    """
    own, placement = log_of(task), view.placements[task]
    return any(
        holder.is_keeper
        and holder.task == task
        and (placement.is_keeper_since(holder.slot) <= view.generation or any(delta.log == own for delta in deltas))
        for holder, deltas in state.replies
    )


def recovered_logs(state: Gathering, plan: Plan, task: TaskId, base_bytes: int) -> tuple[dict[LogId, Delta], int]:
    """Returns the logs that a successor adopts, and where the furthest copy of its own log ends if that may have a
    hole."""
    if plan.replicas is None:
        return gathered_logs(state), 0
    return joined_logs(state, task, base_bytes)
