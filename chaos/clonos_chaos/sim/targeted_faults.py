"""Targeted faults: injected at a named point of the protocol, at the n-th time that it is reached.

A point is named for what has just happened: ``<message> sent`` and ``<message> delivered`` with the tag of the message
(``barrier``, ``watermark`` and ``end`` for a batch that is one), and the points in ``POINTS``, which the world itself
announces. Random worlds draw points from ``DRAWN``; directed tests name their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_never, get_args

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import COORDINATOR, ChannelId, SlotId, TaskId
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import LogReply, LogRequest
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from clonos.io.process.fault_points import FaultPoint
from clonos_chaos.sim.sim_cluster import SimCluster

_REAL_ONLY = (FaultPoint.ALIGNING, FaultPoint.SPILLING, FaultPoint.SNAPSHOT_BEGUN, FaultPoint.WHOLE_STATE_BEGUN)
POINTS = tuple(point for point in FaultPoint if point not in _REAL_ONLY)
"""Points that a world announces, besides messages."""

_WORDS: dict[type, str] = {kind: kind.__struct_config__.tag for kind in get_args(Message)}


def _word_of_batch(kind: ElementKind) -> str:
    match kind:
        case ElementKind.ROWS | ElementKind.COLUMNS:
            return "batch"
        case ElementKind.BARRIER:
            return "barrier"
        case ElementKind.END:
            return "end"
        case ElementKind.WATERMARK:
            return "watermark"
        case _:
            assert_never(kind)


def sent(message: type[Message]) -> str:
    """Names the point at which a message has been sent."""
    return f"{_WORDS[message]} sent"


def delivered(message: type[Message]) -> str:
    """Names the point at which a message has been delivered."""
    return f"{_WORDS[message]} delivered"


DRAWN: tuple[str, ...] = (
    *(FaultPoint.SNAPSHOT_WRITTEN, FaultPoint.METADATA_BEGUN, FaultPoint.METADATA_WRITTEN),
    *(FaultPoint.CALL, FaultPoint.CALLED, FaultPoint.INTENT, FaultPoint.SINK_WRITTEN, FaultPoint.VIEW_ISSUED),
    *("batch delivered", "barrier delivered", "barrier sent", "end delivered", delivered(LogReply)),
    *(delivered(StandbyUpdate), delivered(AppendAck), delivered(AppendLog)),
    *(FaultPoint.ALIGNED, FaultPoint.LOG_END, FaultPoint.LIVE, FaultPoint.COMPLETE, FaultPoint.SINK_OPENED),
    *(delivered(LogRequest), FaultPoint.END_OF_STREAM, FaultPoint.SUSPENDED),
)


class PointReached(NamedTuple):
    """Event: ``task``, or the coordinator (None), has just reached a named point."""

    point: str
    task: TaskId | None = None
    sender: SlotId = COORDINATOR
    receiver: SlotId = COORDINATOR
    message: Message | None = None

    def name_in(self, world: SimCluster) -> str:
        """Returns the name of the task; empty for the coordinator."""
        is_known = self.task is not None and self.task < len(world.plan.tasks)
        return world.plan.task_name(self.known_task) if is_known else ""

    @property
    def known_task(self) -> TaskId:
        """Returns the task. The coordinator must not be able to reach this point."""
        assert self.task is not None, self
        return self.task


Where = Callable[[SimCluster, PointReached], bool]
FaultAction = Callable[[SimCluster, PointReached], None]


def everywhere(_world: SimCluster, _reached: PointReached) -> bool:
    """Accepts the point wherever it is reached."""
    return True


def loses(_world: SimCluster, _reached: PointReached) -> None:
    """Does nothing: the message is lost already, see ``TargetedFault.is_loss``."""


@dataclass
class TargetedFault:
    """Fault injected at ``point`` where ``where`` holds: at the ``nth`` time and after it, ``times`` times in all.

    ``is_loss``: the message itself is dropped (only for points ``... sent``).
    """

    point: str
    action: FaultAction
    where: Where = everywhere
    nth: int = 1
    times: int = 1
    is_loss: bool = False
    seen: int = 0
    injected: int = 0

    def __post_init__(self) -> None:
        assert is_known(self.point), f"no world reaches the point {self.point!r}"

    def satisfies(self, world: SimCluster, reached: PointReached) -> bool:
        """Counts an occurrence of the point and returns whether the fault is injected now."""
        if self.injected == self.times or not self.where(world, reached):
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.injected += 1
        return True


def is_of_message(point: str) -> bool:
    """Returns whether a point is the sending or the delivery of a message."""
    word, _, what = point.rpartition(" ")
    return what in ("sent", "delivered") and word in {*_WORDS.values(), *map(_word_of_batch, ElementKind)}


def is_known(point: str) -> bool:
    """Returns whether a world announces such a point."""
    return point.removesuffix(" of a shadow") in POINTS or is_of_message(point)


def word_of(message: Message) -> str:
    """Returns the word that stands for a message in the name of a point."""
    if type(message) is Batch:
        return _word_of_batch(message.kind)
    return _WORDS[type(message)]


def task_of(world: SimCluster, message: Any) -> TaskId | None:
    """Returns the task that a message is about: for a message of a channel, the sending task."""
    channel = getattr(message, "channel", None)
    if channel is not None and not hasattr(message, "task"):
        channels = world.plan.channels  # a message may be of another plan
        return channels[ChannelId(channel)].sender if channel < len(channels) else None
    task: TaskId | None = getattr(message, "task", None)
    return task
