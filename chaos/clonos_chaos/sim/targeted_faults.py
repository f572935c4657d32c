"""Faults aimed at named points of the protocol: where, the how-manyth time, and what happens there.

Points are named for what has just been reached: ``<message> sent`` and ``<message> delivered`` with the message's word
(a batch that is a barrier or an end of stream goes by that name), and those in ``POINTS``, which the world itself
announces. Random worlds draw from ``DRAWN``; cases write their own aims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from clonos.core.model.ids import COORDINATOR, ChannelId, SlotId, TaskId
from clonos.core.ports.operator_chain import Kind
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.messages import Message

if TYPE_CHECKING:
    from clonos_chaos.swarm.world import World

NOBODY = TaskId(-1)

POINTS = (
    "start",  # of an incarnation's thread
    "log end",  # a task asks leave to go live
    "live",  # and has got it
    "intent",  # INTENT is in the log, and on its way to the keeper
    "call",  # the outside is about to be called
    "called",  # the outside has answered, and nobody else knows
    "emission",  # a step was done
    "aligned",  # a barrier was put into the stream, with the snapshot
    "end of stream",  # a task has ended its stream, with the final snapshot
    "snapshot written",
    "metadata begun",
    "metadata written",  # durable, and nobody knows yet
    "complete",  # the coordinator knows
    "taken in",  # a journalled source has got bytes of its pusher, and nobody else knows
    "acknowledged",  # the pusher was told that they are kept
    "outside opened",
    "outside written",  # the outside has it, and nobody else knows
    "committed",
    "view issued",
    "rollback issued",
)

DRAWN = (
    *("snapshot written", "metadata begun", "metadata written", "call", "called", "intent", "outside written"),
    *("view issued", "batch delivered", "barrier delivered", "barrier sent", "end delivered", "answer delivered"),
    *("standby_update delivered", "kept delivered", "keep delivered", "aligned", "log end", "live", "complete"),
    *("outside opened", "question delivered", "end of stream"),
)


class PointReached(NamedTuple):
    """A named point has just been reached, by ``task`` or (NOBODY) by the coordinator."""

    point: str
    task: TaskId = NOBODY
    sender: SlotId = COORDINATOR
    receiver: SlotId = COORDINATOR
    message: Message | None = None


Where = Callable[["World", PointReached], bool]
Strike = Callable[["World", PointReached], None]


def everywhere(_world: World, _reached: PointReached) -> bool:
    """Wherever the point is reached."""
    return True


def loses(_world: World, _reached: PointReached) -> None:
    """Nothing but the message, which is lost: see ``Aim.is_loss``."""


@dataclass
class Aim:
    """Strikes from the ``nth`` time on that ``point`` is reached where ``where`` says, ``times`` times.

    ``is_loss``: the message is lost (only for ``... sent``), before anything else happens.
    """

    point: str
    strike: Strike
    where: Where = everywhere
    nth: int = 1
    times: int = 1
    is_loss: bool = False
    seen: int = 0
    struck: int = 0

    def satisfies(self, world: World, reached: PointReached) -> bool:
        """Counts; whether it strikes now."""
        if self.struck == self.times or not self.where(world, reached):
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.struck += 1
        return True


_WORDS: dict[type, str] = {kind: kind.__struct_config__.tag for kind in get_args(Message)}
_CONTROL_KINDS = {int(Kind.BARRIER): "barrier", int(Kind.END): "end"}


def is_of_message(point: str) -> bool:
    """Whether a point is that a message was sent or delivered."""
    word, _, what = point.rpartition(" ")
    return what in ("sent", "delivered") and word in {*_WORDS.values(), *_CONTROL_KINDS.values(), "batch"}


def word_of(message: Message) -> str:
    """The word of a message in the name of a point."""
    if type(message) is Batch:
        return _CONTROL_KINDS.get(message.kind, "batch")
    return _WORDS[type(message)]


def task_of(world: World, message: Any) -> TaskId:
    """The task that a message is about; the sender of a channel."""
    channel = getattr(message, "channel", None)
    if channel is not None and not hasattr(message, "task"):
        return world.plan.channels[ChannelId(channel)].sender
    return TaskId(getattr(message, "task", NOBODY))
