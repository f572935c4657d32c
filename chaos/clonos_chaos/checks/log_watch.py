"""Oracle of causal logs and in-flight logs.

Every replica is a byte prefix of the log of its owner, whose later incarnations continue where the earlier one was last
seen. No log and no replica reaches back beyond the last completed checkpoint that its slot knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata, TaskEntry
from clonos.core.checkpoint.snapshot import decode_snapshot
from clonos.core.log.causal_log import Replica
from clonos.core.model.ids import ChannelId, CheckpointId, LogId, SlotId, journal_of, log_of, owner_of
from clonos.core.recovery.recovery_machine import Recovering
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.control_messages import View
from clonos_chaos.sim.sim_cluster import SimCluster
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.sim.virtual_clock import MILLISECOND_NS


class LogWatch:
    """Oracle that checks the logs of all living slots at one instant."""

    def __init__(self, world: SimCluster) -> None:
        self.world = world
        self._offsets: dict[CheckpointId, dict[LogId, int]] = {CheckpointId(0): {}}  # per completed checkpoint
        self.positions: dict[CheckpointId, dict[ChannelId, int]] = {CheckpointId(0): {}}
        self._links: dict[str, tuple[CheckpointId, CheckpointId | None]] = {}  # per object of the store
        self._completions: deque[tuple[int, CheckpointId]] = deque()  # (instant, number), oldest first
        self._must_know = CheckpointId(0)  # checkpoint that every slot must know by now
        self._present_ns: dict[SlotId, int] = {}  # since when a slot has been in all views

    def forget_plan(self) -> None:
        """Logs and channels begin anew, with other numbers: nothing of them is truncated."""
        self._offsets = {checkpoint: {} for checkpoint in self._offsets}
        self.positions = {checkpoint: {} for checkpoint in self.positions}

    def completed(self, metadata: CheckpointMetadata) -> None:
        """Records where logs may be truncated."""
        positions: dict[ChannelId, int] = {}
        for entry in metadata.tasks:
            positions.update(self._outputs(entry, metadata.checkpoint))
            for before, name in pairwise(entry.objects):
                if self._link(name)[1] != self._link(before)[0]:
                    self.world.fail(f"snapshot {name} builds on {self._link(name)[1]}, but follows {before}")
        self._completions.append((self.world.clock.now_ns, metadata.checkpoint))
        self.positions[metadata.checkpoint] = positions
        self._offsets[metadata.checkpoint] = {log_of(entry.task): entry.log_offset_bytes for entry in metadata.tasks}

    def _outputs(self, entry: TaskEntry, checkpoint: CheckpointId) -> Sequence[tuple[ChannelId, int]]:
        """Returns where a task truncates its channels. It does so by its own snapshot of the checkpoint, also if the
        checkpoint has its final one, which is later."""
        for name in reversed(entry.objects):
            found = decode_snapshot(self.world.store[name][0], name)
            if found.checkpoint <= checkpoint:
                return found.outputs
        return ()

    def _link(self, name: str) -> tuple[CheckpointId, CheckpointId | None]:
        """Returns (checkpoint, previous) of a stored snapshot."""
        if name not in self._links:
            found = decode_snapshot(self.world.store[name][0], name)
            self._links[name] = found.checkpoint, found.previous
        return self._links[name]

    def look(self, view: View) -> None:
        """Checks all logs."""
        if not view.number:
            return
        self._check_completions_known(view)
        owners = self._owners(view)
        for slot in self.world.living():
            self._look_at_slot(slot, view, owners)

    def _check_completions_known(self, view: View) -> None:
        """Checks that slots learn of completed checkpoints in time; otherwise they would keep logs for ever."""
        now_ns = self.world.clock.now_ns
        long_ns = self.world.settings.patience_ms * MILLISECOND_NS // 3
        while self._completions and self._completions[0][0] < now_ns - long_ns:
            self._must_know = self._completions.popleft()[1]
        self._present_ns = {a.slot: self._present_ns.get(a.slot, now_ns) for a in view.slots}
        for slot_id, since_ns in self._present_ns.items():
            slot = self.world.slots[slot_id]
            if since_ns < now_ns - long_ns and not slot.is_dead and slot.slot.completed < self._must_know:
                self.world.fail(
                    f"slot {slot_id} knows checkpoint {slot.slot.completed} only; {self._must_know} was complete"
                    f" {long_ns // MILLISECOND_NS} ms ago"
                )

    def _owners(self, view: View) -> dict[LogId, Replica]:
        """Returns the logs and journals of tasks whose current incarnation has gathered its log."""
        owners: dict[LogId, Replica] = {}
        for placement in view.placements:
            slot = self.world.slot_at(placement.slot)
            hosted = slot.slot.hosted.get(placement.task) if slot is not None and not slot.is_dead else None
            if hosted is not None and hosted.incarnation == placement.incarnation and _has_gathered(hosted):
                for log in (log_of(placement.task), journal_of(placement.task)):
                    if log in hosted.logs.replicas:
                        owners[log] = hosted.logs.replicas[log]
        return owners

    def _look_at_slot(self, slot: SimSlot, view: View, owners: dict[LogId, Replica]) -> None:
        machine = slot.slot
        installed = machine.view
        if not installed.number or installed.generation != view.generation:
            return
        known = owners if installed.number == view.number else self._known(installed, view, owners)
        floors = self._offsets[machine.completed]
        for hosted in machine.hosted.values():
            if hosted.incarnation != view.placements[hosted.task].incarnation:
                continue
            who = f"{self.world.plan.task_name(hosted.task)} in slot {slot.id}"
            self._compare(who, hosted.logs.replicas, known, floors)
            self._bound(who, hosted, self.positions[machine.completed])
        for task, keeper in machine.backups.keepers.items():
            if slot.id in view.placements[task].keepers:
                who = f"the keeper of {self.world.plan.task_name(task)} in slot {slot.id}"
                self._compare(who, keeper.logs.replicas, known, floors)
        for task, shadow in machine.backups.shadows.items():
            if shadow.incarnation == view.placements[task].incarnation and not shadow.is_sealed:
                who = f"the shadow of {self.world.plan.task_name(task)} in slot {slot.id}"
                self._compare(who, shadow.logs.replicas, known, floors)

    def _known(self, installed: View, view: View, owners: dict[LogId, Replica]) -> dict[LogId, Replica]:
        """Keeps the tasks that have the same incarnation in the latest view and in the view installed by a slot."""
        return {
            log: owner
            for log, owner in owners.items()
            if installed.placements[owner_of(log)].incarnation == view.placements[owner_of(log)].incarnation
        }

    def _compare(
        self, who: str, replicas: dict[LogId, Replica], owners: dict[LogId, Replica], floors: dict[LogId, int]
    ) -> None:
        for log, replica in replicas.items():
            if replica.data and replica.start_bytes < floors.get(log, 0):
                self._complain(who, log, f"holds it from {replica.start_bytes} on, below {floors[log]}")
            owner = owners.get(log)
            if owner is None or owner is replica:
                continue
            if replica.data and replica.end_bytes > owner.end_bytes:
                self._complain(who, log, f"holds it up to {replica.end_bytes}, its owner up to {owner.end_bytes}")
            first = max(replica.start_bytes, owner.start_bytes)
            ours = replica.data[first - replica.start_bytes :]
            theirs = owner.data[first - owner.start_bytes : max(first, replica.end_bytes) - owner.start_bytes]
            if ours != theirs:
                self._complain(who, log, f"has other bytes than its owner from {first} on: {ours!r}, {theirs!r}")

    def _complain(self, who: str, log: LogId, what: str) -> None:
        task = owner_of(log)
        kind = "the log" if log == log_of(task) else "the journal"
        self.world.fail(f"{kind} of {self.world.plan.task_name(task)}: {who} {what}")

    def _bound(self, who: str, hosted: HostedTask, positions: dict[ChannelId, int]) -> None:
        for channel, sender in hosted.outputs.senders.items():
            if sender.log.start_seq < positions.get(channel, 0):
                self.world.fail(
                    f"channel {channel}: {who} keeps elements from {sender.log.start_seq} on, but those below"
                    f" {positions[channel]} belong to a completed checkpoint that it knows"
                )


def _has_gathered(hosted: HostedTask) -> bool:
    """Returns whether a task has gathered its log without a hole; a task with a hole rolls back soon."""
    has_hole = hosted.found_bytes > hosted.logs.end_bytes(hosted.own_log)
    return not isinstance(hosted.state, Recovering) and not has_hole
