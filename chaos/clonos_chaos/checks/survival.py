"""Model of the failures that may cost a log (protocol 3): every other rollback is a bug.

With full sharing depth a log is lost only when a task whose effects leave the job dies together with all its keepers.
With depth d also when d + 1 consecutive tasks of a path are down at once. A task is *down* from its death until its
successor has gathered the logs and has had a message from each input.
"""

from __future__ import annotations

from clonos.core.model.ids import Incarnation, SlotId, TaskId
from clonos.core.model.plan import Plan
from clonos.core.recovery.recovery_machine import Recovering
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.wire.control_messages import View
from clonos_chaos.sim.sim_cluster import SimCluster


class Survival:
    """Model of which slot holds which logs. It permits too much rather than too little between two checks."""

    def __init__(self, world: SimCluster) -> None:
        self.world = world
        self.why_permitted = ""  # in this generation
        self.effects_exposed: set[TaskId] = set()  # tasks with effects that died with their keepers, in any generation
        self.exposed_before: set[str] = set()  # the same with earlier widths, some of which may not run any more
        self._up: dict[TaskId, Incarnation] = {}  # incarnations that have held all logs that they should
        self._keepers: dict[TaskId, set[SlotId]] = {}  # keepers that hold the causes of all output of their task
        self._filled: dict[TaskId, set[SlotId]] = {}  # the same, with keepers that died unnoticed
        self._staying: set[TaskId] = set()  # sources whose journal is safe in their slot while they restart
        self._dead: set[SlotId] = set()
        self._down: dict[
            str, set[TaskId]
        ] = {}  # by domain that lost a slot: tasks that do not hold their logs again yet

    def begin(self, view: View) -> None:
        """Begins a generation without output. A journal survives at its keepers, and at the source itself where that
        lives on in its slot."""
        named = {task: set(view.placements[task].keepers) for task in self.world.plan.with_keepers}
        self._staying.clear()
        for task, complete in self._keepers.items():
            if self.world.plan.is_journalled(task):
                named[task] &= complete
                if self._stays(task, view):
                    self._staying.add(task)
                elif not named[task]:
                    self.effects_exposed.add(task)
        self.why_permitted = ""
        self._up.clear()
        self._down.clear()
        self._keepers = named
        self._filled = {task: set(keepers) for task, keepers in named.items()}

    def renumber(self, before: Plan, plan: Plan) -> None:
        """Widths change: what is known of tasks stays with their names."""

        def renumbered(task: TaskId) -> TaskId | None:
            return plan.task_named(before.task_name(task))

        self.exposed_before.update(before.task_name(task) for task in self.effects_exposed)
        self.effects_exposed = {new for task in self.effects_exposed if (new := renumbered(task)) is not None}
        self._keepers = {new: held for task, held in self._keepers.items() if (new := renumbered(task)) is not None}
        self._filled, self._staying = {}, set()

    def _stays(self, task: TaskId, view: View) -> bool:
        """Returns whether a new generation finds the journal of a source where its last incarnation ran."""
        slot = self.world.slot_at(view.placements[task].slot)
        if slot is None or slot.is_dead or slot.slot.view.number != view.number - 1:
            return False
        hosted = slot.slot.hosted.get(task)
        return hosted is not None and not isinstance(hosted.state, Recovering)

    def look(self, view: View) -> None:
        """Updates which incarnations and keepers hold everything."""
        for placement in view.placements:
            task = placement.task
            hosted = self._hosted(task, placement.slot, placement.incarnation)
            if hosted is not None and self._up.get(task) != placement.incarnation and _holds_all(hosted):
                self._up[task] = placement.incarnation
            if hosted is not None and not isinstance(hosted.state, Recovering):
                self._staying.discard(task)
        self._update_domains_down(view)
        for task, complete in self._keepers.items():
            placement = view.placements[task]
            for slot_id in placement.keepers:
                slot = self.world.slot_at(slot_id)
                # A keeper that was dropped and is named again may know neither view: its logs are old.
                has_view = slot is not None and slot.slot.view.number >= placement.is_keeper_since(slot_id)
                keeper = (
                    slot.slot.backups.keepers.get(task) if slot is not None and has_view and not slot.is_dead else None
                )
                if keeper is not None and keeper.is_ready and keeper.incarnation == placement.incarnation:
                    complete.add(slot_id)
                    self._filled[task].add(slot_id)

    def _falls(self, slots: list[SlotId], view: View) -> None:
        """Records that the logs of these slots are gone."""
        for slot in slots:
            down = self._down.setdefault(self.world.slots[slot].domain, set())
            down |= {p.task for p in view.placements if slot == p.slot or slot in p.keepers}

    def _update_domains_down(self, view: View) -> None:
        """Updates the domains that are down: until each task that they held a log of is up, with enough keepers."""
        for domain, tasks in list(self._down.items()):
            tasks -= {task for task in tasks if self._is_covered_again(view, task)}
            if not tasks:
                del self._down[domain]

    def _is_covered_again(self, view: View, task: TaskId) -> bool:
        placement = view.placements[task]
        if placement.slot in self._dead or self._up.get(task) != placement.incarnation:
            return False
        domains = set()
        for slot_id in placement.keepers:
            slot = self.world.slot_at(slot_id)
            keeper = slot.slot.backups.keepers.get(task) if slot is not None and slot_id not in self._dead else None
            if keeper is not None and keeper.is_ready and keeper.incarnation == placement.incarnation:
                domains.add(self.world.slots[slot_id].domain)
        domains.discard(self.world.slots[placement.hosting_slot].domain)
        return task not in self.world.plan.feeding or len(domains) >= (self.world.plan.replicas or 0)

    def _hosted(self, task: TaskId, slot_id: SlotId | None, incarnation: Incarnation) -> HostedTask | None:
        slot = self.world.slot_at(slot_id)
        if slot is None or slot.is_dead or slot_id in self._dead:
            return None
        hosted = slot.slot.hosted.get(task)
        return hosted if hosted is not None and hosted.incarnation == incarnation else None

    def dying(self, slots: list[SlotId], view: View) -> None:
        """Records that these processes are about to die, or count as dead from now on."""
        if not view.number:
            return
        self.look(view)
        self._falls(slots, view)
        self._dead.update(slots)
        self._judge(view)

    def viewed(self, before: View, view: View) -> None:
        """Applies a view: incarnations that it ends are dead, keepers that it does not name are gone."""
        if before.number:
            self.look(before)
        present = {address.slot for address in view.slots}
        self._falls([address.slot for address in before.slots if address.slot not in present], before)
        for old, new in zip(before.placements, view.placements, strict=False):
            if old.incarnation != new.incarnation and old.slot in present:  # it raised, and its copy of the log is gone
                self._down.setdefault(self.world.slots[old.hosting_slot].domain, set()).add(old.task)
        here = {task for task in self._staying if before.placements[task].slot == view.placements[task].slot}
        self._staying = {task for task in here if self._has_installed(task, before)}
        for task, complete in self._keepers.items():
            named = set(view.placements[task].keepers)
            dropped = {slot for slot in complete - named if slot in present}
            complete &= named
            self._filled[task] &= named
            # Other keepers may be dead unnoticed; they count while their task lives and has all logs itself.
            lives = before.placements[task].incarnation, view.placements[task].incarnation
            is_begun = len(set(lives)) > 1 and view.generation == before.generation
            if dropped and (is_begun or not self._filled[task]):
                name, what = self.world.plan.task_name(task), "keepers" if is_begun else "the last keepers"
                self.world.fail(f"view {view.number:x} drops {what} that hold all logs of {name}: {dropped}")
        if view.generation < before.generation:
            self._permit("the coordinator that began a generation is dead, and so are all slots that knew it")
        self._judge(view)

    def _has_installed(self, task: TaskId, view: View) -> bool:
        slot = self.world.slot_at(view.placements[task].slot)
        return slot is not None and slot.slot.view.number >= view.number

    def _judge(self, view: View) -> None:
        plan = self.world.plan
        for task, complete in self._keepers.items():
            complete -= self._dead
            placement = view.placements[task]
            hosted = self._hosted(task, placement.slot, placement.incarnation)
            is_safe = task in self._staying and placement.slot not in self._dead
            if not (complete or is_safe) and (hosted is None or isinstance(hosted.state, Recovering)):
                self.effects_exposed.add(task)
                self._permit(f"{plan.task_name(task)} is dead and so are its keepers")
        domains = {address.domain for address in view.slots} | self._down.keys()
        if plan.replicas is not None and len(self._down) > min(plan.replicas, len(domains) - 1):
            self._permit(f"{len(self._down)} of {len(domains)} domains are down, replicas are {plan.replicas}")
        depth = plan.sharing_depth
        if depth is not None:
            longest = self._longest_run_down(view)
            if longest > depth:
                self._permit(f"{longest} consecutive tasks are down, the depth is {depth}")

    def _permit(self, why: str) -> None:
        if not self.why_permitted:
            self.why_permitted = why
            self.world.note(f"a log may be lost: {why}")

    def _longest_run_down(self, view: View) -> int:
        plan = self.world.plan
        runs: dict[TaskId, int] = {}
        for placement in view.placements:
            task = placement.task
            holds_all = placement.is_fresh or self._up.get(task) == placement.incarnation
            is_up = holds_all and placement.slot not in self._dead
            before = [runs[channel.sender] for channel in plan.inputs[task]]
            runs[task] = 0 if is_up else 1 + max(before, default=0)
        return max(runs.values())


def _holds_all(hosted: HostedTask) -> bool:
    return not isinstance(hosted.state, Recovering) and all(r.is_confirmed for r in hosted.inputs.receivers.values())
