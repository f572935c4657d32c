"""Placement of tasks, standbys and keepers on slots and domains (protocol 6). Pure functions; ties are broken by id.

Each slot runs one active task while there are enough slots. Standbys and keepers are backups, placed in another domain
where possible. A living task is never moved, and a backup is dismissed only when a better one is ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.model.options import PlacementKind
from clonos.core.model.plan import Plan
from clonos.core.placement.placement_rules import PLAIN_RULES, PlacementRules


class Assignment(NamedTuple):
    """Slots of a task and its backups. Backups are in the order in which they were assigned."""

    slot: SlotId | None  # None: the task waits for a slot
    standbys: tuple[SlotId, ...] = ()
    keepers: tuple[SlotId, ...] = ()


NO_ASSIGNMENT = Assignment(None)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Reports of slots about their backups: the checkpoint that a mirror can restore, the incarnation that a keeper
    holds logs of, and the standbys with a shadow.
    """

    standbys: Mapping[tuple[SlotId, TaskId], CheckpointId]
    keepers: Mapping[tuple[SlotId, TaskId], Incarnation]
    snapshots: Sequence[CheckpointId]  # per task, the snapshot that a successor restores
    incarnations: Sequence[Incarnation | None]  # per task; None if the next view begins another incarnation
    shadows: frozenset[tuple[SlotId, TaskId]] = frozenset()

    def has_standby(self, slot: SlotId, task: TaskId) -> bool:
        """Returns whether the mirror has reached the last completed checkpoint."""
        reached = self.standbys.get((slot, task))
        return reached is not None and reached >= self.snapshots[task]

    def has_keeper(self, slot: SlotId, task: TaskId) -> bool:
        """Returns whether the keeper holds every log that the task's current incarnation holds."""
        incarnation = self.incarnations[task]
        return incarnation is not None and self.keepers.get((slot, task)) == incarnation


@dataclass(frozen=True, slots=True)
class ReplicationTargets:
    """Number of standbys and keepers that a task should have. Keepers serve external effects and ``replicas``."""

    standbys: int
    keepers: int


TASK_LOAD = 4
"""Load of an active task, in multiples of a backup's. With spare slots a promoted standby then has a slot to itself,
while two busy tasks in one process would share a processor for the rest of the job.
"""


class Loads:
    """Loads of the slots. Finds the least loaded slot of an allowed domain in logarithmic time.

    Loads only grow during a placement, so a stale heap entry is too low and is corrected when it reaches the top.
    """

    def __init__(
        self,
        domains: Mapping[SlotId, str],
        assignment: Sequence[Assignment],
        hosts: Mapping[str, str],
        rules: PlacementRules = PLAIN_RULES,
    ) -> None:
        self.domains = domains
        self._beside: dict[str, set[str]] = {}
        for domain in domains.values():
            self._beside.setdefault(hosts.get(domain, domain), set()).add(domain)
        self._host_of, self._rules = hosts, rules
        self._exclusive = {a.slot for task, a in enumerate(assignment) if rules.of_task(task).is_exclusive}
        tasks = Counter(assigned.slot for assigned in assignment)
        backups = Counter(chain.from_iterable(assigned.standbys + assigned.keepers for assigned in assignment))
        self.tasks = {slot: tasks[slot] for slot in sorted(domains)}
        self.total = {slot: TASK_LOAD * count + backups[slot] for slot, count in self.tasks.items()}
        self._by_domain: dict[str, list[tuple[int, SlotId]]] = {}
        for slot in self.total:
            self._by_domain.setdefault(domains[slot], []).append((self.total[slot], slot))
        for entries in self._by_domain.values():
            heapify(entries)
        self._tops = [(entries[0][0], domain) for domain, entries in self._by_domain.items()]
        heapify(self._tops)
        self._free: list[tuple[int, int, int, str, SlotId]] = []  # built when the first task is placed

    def _slots_by_rank(self) -> list[tuple[int, int, int, str, SlotId]]:
        """Returns the heap for active tasks: ordered by tasks, then load, then alternating between domains."""
        ranks: dict[str, int] = {}
        found = []
        for slot, tasks in self.tasks.items():
            domain = self.domains[slot]
            ranks[domain] = rank = ranks.get(domain, -1) + 1
            found.append((tasks, self.total[slot], rank, domain, slot))
        heapify(found)
        return found

    def beside(self, domains: frozenset[str]) -> frozenset[str]:
        """Returns all domains on the hosts of these domains."""
        return frozenset().union(*(self._beside.get(self._host_of.get(own, own), ()) for own in domains))

    def fits(self, task: int, slot: SlotId) -> bool:
        """Returns whether a slot fits the rules of a task, and the task those of the tasks there."""
        is_shared = bool(self.tasks[slot]) and (self._rules.of_task(task).is_exclusive or slot in self._exclusive)
        return not is_shared and self._rules.is_on_host(task, self.domains[slot], self._host_of)

    def misfits(self, task: int) -> tuple[SlotId, ...]:
        """Returns the slots that are on other hosts than a task is to run on."""
        if not self._rules.host_of(task):
            return ()
        return tuple(
            slot for slot, domain in self.domains.items() if not self._rules.is_on_host(task, domain, self._host_of)
        )

    def take_task(self, task: int) -> SlotId | None:
        """Adds an active task to the slot that fits its rules and has the fewest, and returns it; None if there is no
        slot."""
        if not self._rules.are_plain:
            slot = min(self.domains, key=lambda slot: self._rank(task, slot), default=None)
            if slot is not None:
                self.add_task(slot, task)
            return slot
        self._free = self._free or self._slots_by_rank()
        while self._free:
            tasks, total, rank, domain, slot = self._free[0]
            if (tasks, total) != (self.tasks[slot], self.total[slot]):
                heappop(self._free)
                heappush(self._free, (self.tasks[slot], self.total[slot], rank, domain, slot))
                continue
            self.add_task(slot, task)
            return slot
        return None

    def _rank(self, task: int, slot: SlotId) -> tuple[object, ...]:
        """Returns the order of slots for a task, the best first."""
        domain = self.domains[slot]
        is_there = self._rules.is_on_host(task, domain, self._host_of)
        host = self._host_of.get(domain, domain)
        beside = sum(count for each, count in self.tasks.items() if self.domains[each] == domain)
        on_host = sum(count for each, count in self.tasks.items() if self._host(each) == host)
        if self._rules.kind is PlacementKind.PACK:
            order: tuple[object, ...] = (-on_host, -beside, self.total[slot])
        else:
            order = (self.total[slot], on_host, beside)
        return not self.fits(task, slot), not is_there, self.tasks[slot], *order, host, domain, slot

    def _host(self, slot: SlotId) -> str:
        return self._host_of.get(self.domains[slot], self.domains[slot])

    def add_task(self, slot: SlotId, task: int) -> None:
        """Adds an active task to a slot."""
        if self._rules.of_task(task).is_exclusive:
            self._exclusive.add(slot)
        self.tasks[slot] += 1
        self.total[slot] += TASK_LOAD

    def take_backup(self, avoid_domains: frozenset[str], avoid_slots: tuple[SlotId, ...]) -> SlotId | None:
        """Adds a backup to the least loaded slot outside these domains and slots, and returns it; None without one."""
        if len(avoid_domains) >= len(self._by_domain):
            return None
        aside: list[str] = []
        found = None
        while self._tops and found is None:
            known, domain = heappop(self._tops)
            top = self._top_of(domain)
            if known != top:
                heappush(self._tops, (top, domain))
                continue
            aside.append(domain)
            if domain not in avoid_domains:
                found = self._take_in(domain, avoid_slots)
        for domain in aside:
            heappush(self._tops, (self._top_of(domain), domain))
        return found

    def _top_of(self, domain: str) -> int:
        entries = self._by_domain[domain]
        while entries[0][0] != self.total[entries[0][1]]:
            slot = heappop(entries)[1]
            heappush(entries, (self.total[slot], slot))
        return entries[0][0]

    def _take_in(self, domain: str, avoid_slots: tuple[SlotId, ...]) -> SlotId | None:
        entries = self._by_domain[domain]
        aside: list[SlotId] = []
        found = None
        while entries and found is None:
            self._top_of(domain)
            slot = heappop(entries)[1]
            aside.append(slot)
            if slot not in avoid_slots:
                found = slot
                self.total[slot] += 1
        for slot in aside:
            heappush(entries, (self.total[slot], slot))
        return found

    def add_backup(self, slot: SlotId) -> None:
        """Adds a backup to a slot."""
        self.total[slot] += 1


def place(
    targets: Sequence[ReplicationTargets],
    domains: Mapping[SlotId, str],
    assignment: Sequence[Assignment],
    ready: Readiness,
    hosts: Mapping[str, str],
    rules: PlacementRules = PLAIN_RULES,
) -> tuple[Assignment, ...]:
    """Returns the next assignment of all tasks, from the previous one and the living slots' domains and hosts.

    A task whose slot is dead moves to its most advanced standby, else to the slot with the fewest tasks, else it waits.
    A slot that fits the rules of the task comes before a standby that does not.
    Missing or badly placed backups are assigned again beside the old ones, which are dismissed when the new ones are
    ready. A task that shares its slot has a standby on a slot without tasks, if there is one, so that it can move.
    """
    others_exist = len(set(domains.values())) > 1
    tasks_on = Counter(assigned.slot for assigned in assignment)
    may_move = len(tasks_on) < len(domains) and max(tasks_on.values(), default=0) > 1
    unbalanced = [
        task
        for task, assigned in enumerate(assignment)
        if (may_move and tasks_on[assigned.slot] > 1) or not is_balanced(targets[task], assigned, domains, others_exist)
    ]
    if not unbalanced:
        return tuple(assignment)
    loads = Loads(domains, assignment, hosts, rules)
    placed = list(assignment)
    for task in sorted(unbalanced, key=rules.strictness) if rules.of else unbalanced:
        if placed[task].slot not in domains:
            placed[task] = placed[task]._replace(slot=_promote(TaskId(task), placed[task], loads, ready))
    for task in reversed(unbalanced):  # sinks first, because no task downstream holds their logs
        placed[task] = _with_backups(TaskId(task), placed[task], targets[task], loads, ready)
    return tuple(placed)


def _promote(task: TaskId, assigned: Assignment, loads: Loads, ready: Readiness) -> SlotId | None:
    candidates = [slot for slot in assigned.standbys if slot in loads.domains]
    if any(loads.fits(task, slot) for slot in candidates):
        candidates = [slot for slot in candidates if loads.fits(task, slot)]
    elif not candidates or any(loads.fits(task, slot) for slot in loads.domains):
        return loads.take_task(task)

    slot = candidates[0] if len(candidates) == 1 else _fittest(task, candidates, assigned.keepers, loads, ready)
    loads.add_task(slot, task)
    return slot


def _fittest(
    task: TaskId, candidates: list[SlotId], assigned_keepers: Collection[SlotId], loads: Loads, ready: Readiness
) -> SlotId:
    """Returns the standby to promote."""
    keepers = [slot for slot in assigned_keepers if slot in loads.domains and ready.has_keeper(slot, task)]

    def unfitness(slot: SlotId) -> tuple[bool, bool, bool, bool, int, int, SlotId]:
        reached = ready.standbys.get((slot, task))
        is_hot = (slot, task) in ready.shadows
        has_nothing = not is_hot and reached is None  # it would load the whole state
        # Beside the only keeper, the death of one slot would lose the log until another keeper has it.
        is_beside_log = keepers == [slot]
        is_behind = reached != ready.snapshots[task]
        return has_nothing, is_beside_log, not is_hot, is_behind, -(reached or 0), loads.tasks[slot], slot

    return min(candidates, key=unfitness)


def _with_backups(
    task: TaskId, assigned: Assignment, target: ReplicationTargets, loads: Loads, ready: Readiness
) -> Assignment:
    domains = loads.domains
    living_standbys = tuple(s for s in assigned.standbys if s in domains and s != assigned.slot)
    living_keepers = tuple(s for s in assigned.keepers if s in domains)
    if assigned.slot is None:
        return Assignment(None, living_standbys, living_keepers)
    own, home = domains[assigned.slot], None
    if target.standbys and loads.tasks[assigned.slot] > 1:
        home = _home(task, own, living_standbys, loads)
        living_standbys += (home,) if home is not None and home not in living_standbys else ()
    wanted = _Backups(
        *(assigned.slot, own, living_standbys, target.standbys, (), lambda slot: ready.has_standby(slot, task)),
        misfits=loads.misfits(task),
        home=home,
    )
    standbys = _chosen_backups(wanted, loads)
    wanted = _Backups(
        assigned.slot, own, living_keepers, target.keepers, standbys, lambda slot: ready.has_keeper(slot, task)
    )
    return Assignment(assigned.slot, standbys, _chosen_backups(wanted, loads))


def _home(task: TaskId, own_domain: str, standbys: tuple[SlotId, ...], loads: Loads) -> SlotId | None:
    """Returns a slot without tasks in another domain, to which a task that shares its slot can move: that of a standby,
    else the least loaded one."""
    free = [slot for slot, tasks in loads.tasks.items() if not tasks and loads.domains[slot] != own_domain]
    fitting = [slot for slot in free if loads.fits(task, slot)]
    home = min(fitting, key=lambda slot: (slot not in standbys, loads.total[slot], slot), default=None)
    if home is not None and home not in standbys:
        loads.add_backup(home)
    return home


class _Backups(NamedTuple):
    """Standbys or keepers of a task: the living ones and how many are wanted."""

    own_slot: SlotId
    own_domain: str
    living: tuple[SlotId, ...]
    wanted: int
    preferred: tuple[SlotId, ...]
    is_ready: Callable[[SlotId], bool]
    misfits: tuple[SlotId, ...] = ()
    """Slots in which the task should not run, for standbys."""
    home: SlotId | None = None
    """Slot to which the task will move."""


def _chosen_backups(of: _Backups, loads: Loads) -> tuple[SlotId, ...]:
    domains, is_ready = loads.domains, of.is_ready
    backups = list(of.living)

    def is_elsewhere(slot: SlotId) -> bool:
        return domains[slot] != of.own_domain

    while sum(map(is_elsewhere, backups)) < of.wanted:
        has_enough = sum(slot != of.own_slot for slot in backups) >= of.wanted
        found = _another(of, backups, loads, only_elsewhere=has_enough)
        if found is None:
            break
        backups.append(found)
    if len(backups) <= of.wanted:
        return tuple(backups)

    def rank(slot: SlotId) -> tuple[bool, ...]:
        return not is_elsewhere(slot), slot == of.own_slot, slot != of.home, not is_ready(slot)

    # Dismiss an old backup only when the new one is ready, so that the task is never without one.
    ranked = sorted(backups, key=rank)
    best = ranked[: of.wanted]
    return tuple(slot for slot in backups if slot in best) if all(map(is_ready, best)) else tuple(backups)


def _another(of: _Backups, backups: list[SlotId], loads: Loads, only_elsewhere: bool) -> SlotId | None:
    """Returns a slot for one more backup: on another host, in an unused domain, in another domain, or just another
    slot.
    """
    domains = loads.domains
    taken = (of.own_slot, *backups)
    own, others = frozenset({of.own_domain}), frozenset(domains[slot] for slot in backups)
    avoided = [loads.beside(own | others), own | others, own]
    for avoid in avoided if only_elsewhere else (*avoided, frozenset[str]()):
        for slot in of.preferred:
            if slot not in taken and domains[slot] not in avoid:
                loads.add_backup(slot)
                return slot
        for also in (of.misfits, ()) if of.misfits else ((),):
            found = loads.take_backup(avoid, (*taken, *also))
            if found is not None:
                return found
    return None


def replication_targets(plan: Plan, standbys: int, keepers: int) -> tuple[ReplicationTargets, ...]:
    """Returns the number of standbys and keepers for each task. A task with hot standbys has at least one standby."""
    need_keepers, hot, replicas = plan.all_with_keepers, plan.hot, plan.replicas or 0
    return tuple(
        ReplicationTargets(
            max(standbys, 1) if task in hot else standbys,
            max(keepers if task in need_keepers else 0, replicas if task in plan.feeding else 0),
        )
        for task in plan.tasks
    )


def is_balanced(
    target: ReplicationTargets, assigned: Assignment, domains: Mapping[SlotId, str], others_exist: bool
) -> bool:
    """Returns whether a task has all its backups, and each in another domain if there is one."""
    slot, standbys, keepers = assigned
    if slot is None or slot not in domains or len(standbys) != target.standbys or len(keepers) != target.keepers:
        return False
    own = domains[slot]
    for backup in (*standbys, *keepers):
        if backup not in domains or backup == slot or (others_exist and domains[backup] == own):
            return False
    return True


def with_keepers_at_home(assignment: Sequence[Assignment], tasks: Iterable[TaskId]) -> tuple[Assignment, ...]:
    """Makes the slots of suspended tasks their keepers, so that their logs outlive a loss of others in mid-move."""
    found = list(assignment)
    for task in tasks:
        slot, keepers = found[task].slot, found[task].keepers
        if slot is not None and slot not in keepers:
            found[task] = found[task]._replace(keepers=(*keepers, slot))
    return tuple(found)
