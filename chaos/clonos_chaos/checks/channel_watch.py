"""Oracle of channels: an element keeps its content as long as the receiver lives that has accepted it.

The in-flight log of the sender's current incarnation holds the same content under the same number, even if an earlier
incarnation sent it. Elements may be batched differently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clonos.core.channel.inflight_log import Chunk
from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, Incarnation, TaskId
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.values.elements import decode_records
from clonos.core.wire.channel_messages import Batch
from clonos.core.wire.control_messages import View
from clonos_chaos.sim.rare_situations import LATE_DELTA
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_slot import SimSlot

Content = tuple[ElementKind, int, int, bytes]
"""(kind, count, checkpoint, payload) of a chunk."""

SAME = "the same chunk"


class TakenElements(NamedTuple):
    """Chunks that one incarnation of a receiver has accepted from one channel, by the number of their first element."""

    receiver: Incarnation
    chunks: dict[int, Content]


class ChannelWatch:
    """Oracle that records accepted chunks and compares them with the in-flight logs of senders."""

    def __init__(self, world: SimCluster) -> None:
        self.world = world
        self._taken: dict[ChannelId, TakenElements] = {}
        self._compared: dict[ChannelId, tuple[tuple[Incarnation, Incarnation], int]] = {}  # last chunk compared

    def forget_plan(self) -> None:
        """Forgets all channels, because numbers mean others."""
        self._taken.clear()
        self._compared.clear()

    def receiver(self, slot: SimSlot, batch: Batch) -> ChannelReceiver | None:
        """Returns the receiver that a batch is for, if this slot has it."""
        if slot.slot.view.generation != self.world.view.generation or batch.sender < self.world.view.generation:
            return None  # of a generation that has ended, and perhaps of another plan
        hosted = slot.slot.hosted.get(self.world.plan.channels[batch.channel].receiving_task)
        if hosted is None or hosted.incarnation != batch.receiver:
            return None
        receiver = hosted.inputs.receivers.get(batch.channel)
        if receiver is not None and batch.session != receiver.session and batch.deltas:
            self.world.count(LATE_DELTA)
        return receiver

    def took(self, batch: Batch, payload: Any, first_seq: int) -> None:
        """Records an accepted batch with new elements from ``first_seq`` on."""
        taken = self._taken.get(batch.channel)
        if taken is None or taken.receiver != batch.receiver:
            taken = self._taken[batch.channel] = TakenElements(batch.receiver, {})
        taken.chunks[batch.first_seq] = (batch.kind, batch.count, batch.checkpoint, bytes(payload))
        if batch.first_seq != first_seq:
            self.world.outcome.reached["batch cut by its receiver"] = 1

    def look(self, view: View) -> None:
        """Compares all chunks made since the last call."""
        for channel_id, taken in self._taken.items():
            channel = self.world.plan.channels[channel_id]
            if view.placements[channel.receiving_task].incarnation != taken.receiver:
                continue
            sender = self._present(view, channel.sender)
            if sender is not None and channel_id in sender.outputs.senders:
                self._compare(channel_id, sender, taken)

    def _present(self, view: View, task: TaskId) -> HostedTask | None:
        placement = view.placements[task]
        slot = self.world.slot_at(placement.slot)
        hosted = slot.slot.hosted.get(task) if slot is not None and not slot.is_dead else None
        return hosted if hosted is not None and hosted.incarnation == placement.incarnation else None

    def _shared(self, taken: TakenElements, first_seq: int, now: Content) -> tuple[list[str], list[str]]:
        """Returns the accepted elements of a chunk: as they were accepted, and as the sender has them now."""
        if taken.chunks.get(first_seq) == now:
            return [SAME], [SAME]
        end_seq = first_seq + now[1]
        before = {
            start + offset: element
            for start, content in taken.chunks.items()
            if start < end_seq and first_seq < start + content[1]
            for offset, element in enumerate(_elements(content))
        }
        pairs = [(before[seq], element) for seq, element in enumerate(_elements(now), first_seq) if seq in before]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def _compare(self, channel: ChannelId, sender: HostedTask, taken: TakenElements) -> None:
        log = sender.outputs.senders[channel].log
        pair = (sender.incarnation, taken.receiver)
        compared, highest = self._compared.get(channel, (pair, -1))
        highest = highest if compared == pair else -1
        from_seq = highest
        for chunk in reversed(log._tail):
            if chunk.first_seq <= from_seq:
                break
            before, now = self._shared(taken, chunk.first_seq, _content(chunk))
            highest = max(highest, chunk.first_seq if before else -1)
            if before != now:
                self.world.contradicted(channel, chunk.first_seq, before, now)
        self._compared[channel] = (pair, highest)
        start_seq = log.start_seq
        for first_seq in [seq for seq in taken.chunks if seq < start_seq]:
            del taken.chunks[first_seq]


def _content(chunk: Chunk) -> Content:
    return chunk.kind, chunk.count, chunk.checkpoint, bytes(chunk.payload)


def _elements(content: Content) -> list[str]:
    kind, _, checkpoint, payload = content
    if kind.is_data:
        return [repr(row) for row in decode_records(kind, payload)]
    return [f"{kind.name.lower()} {checkpoint} {payload.hex()}"]
