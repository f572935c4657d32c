"""Who sits where: tasks, standbys and keepers over slots and domains. Pure functions of what is known; all ties by id.

One active task a slot while there are slots enough; standbys and keepers ride along, in another domain where there is
one. What lives stays where it is: an active task is never moved, a rider goes only when a better one is ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import NamedTuple

from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.model.plan import Plan


class Assignment(NamedTuple):
    """Where a task and its riders sit. Riders are kept in the order in which they were named."""

    slot: SlotId | None  # None: it waits for one
    standbys: tuple[SlotId, ...] = ()
    keepers: tuple[SlotId, ...] = ()


NO_ASSIGNMENT = Assignment(None)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What slots have said of their riders: the checkpoint that a mirror can restore, the incarnation kept for, and
    which standbys follow hot."""

    standbys: Mapping[tuple[SlotId, TaskId], CheckpointId]
    keepers: Mapping[tuple[SlotId, TaskId], Incarnation]
    snapshots: Sequence[CheckpointId]  # per task, what a successor restores
    incarnations: Sequence[Incarnation | None]  # per task; None where the next view begins another one
    shadows: frozenset[tuple[SlotId, TaskId]] = frozenset()

    def has_standby(self, slot: SlotId, task: TaskId) -> bool:
        """True when the mirror has reached the last completed checkpoint."""
        reached = self.standbys.get((slot, task))
        return reached is not None and reached >= self.snapshots[task]

    def has_keeper(self, slot: SlotId, task: TaskId) -> bool:
        """True when the keeper holds all that the task's present incarnation holds."""
        incarnation = self.incarnations[task]
        return incarnation is not None and self.keepers.get((slot, task)) == incarnation


@dataclass(frozen=True, slots=True)
class ReplicationTargets:
    """How many riders a task shall have; keepers where its effects leave the job, or for ``replicas``."""

    standbys: int
    keepers: int


TASK_LOAD = 4
"""An active task weighs as much as so many standbys and keepers: where there are spare slots, whoever takes over is
alone there, while two busy tasks in one process take each other's processor for the rest of the job."""


class Loads:
    """How much each slot carries. Finds the least loaded one of an allowed domain in logarithmic time.

    Loads only grow while it lives, so a stale entry of a heap is too low and is mended when it comes up.
    """

    def __init__(
        self, domains: Mapping[SlotId, str], assignment: Sequence[Assignment], hosts: Mapping[str, str]
    ) -> None:
        self.domains = domains
        self._beside: dict[str, set[str]] = {}
        for domain in domains.values():
            self._beside.setdefault(hosts.get(domain, domain), set()).add(domain)
        self._host_of = hosts
        tasks = Counter(seat.slot for seat in assignment)
        backups = Counter(chain.from_iterable(seat.standbys + seat.keepers for seat in assignment))
        self.tasks = {slot: tasks[slot] for slot in sorted(domains)}
        self.total = {slot: TASK_LOAD * count + backups[slot] for slot, count in self.tasks.items()}
        self._by_domain: dict[str, list[tuple[int, SlotId]]] = {}
        for slot in self.total:
            self._by_domain.setdefault(domains[slot], []).append((self.total[slot], slot))
        for entries in self._by_domain.values():
            heapify(entries)
        self._tops = [(entries[0][0], domain) for domain, entries in self._by_domain.items()]
        heapify(self._tops)
        self._free: list[tuple[int, int, int, str, SlotId]] = []  # made when the first task is taken

    def _slots_by_rank(self) -> list[tuple[int, int, int, str, SlotId]]:
        """For active tasks: by tasks, then load, then one domain after the other."""
        ranks: dict[str, int] = {}
        found = []
        for slot, tasks in self.tasks.items():
            domain = self.domains[slot]
            ranks[domain] = rank = ranks.get(domain, -1) + 1
            found.append((tasks, self.total[slot], rank, domain, slot))
        heapify(found)
        return found

    def beside(self, domains: frozenset[str]) -> frozenset[str]:
        """All domains on the hosts of these."""
        return frozenset(d for own in domains for d in self._beside.get(self._host_of.get(own, own), ()))

    def take_task(self) -> SlotId | None:
        """The slot with the fewest active tasks gets one more; None when there is no slot."""
        self._free = self._free or self._slots_by_rank()
        while self._free:
            tasks, total, rank, domain, slot = self._free[0]
            if (tasks, total) != (self.tasks[slot], self.total[slot]):
                heappop(self._free)
                heappush(self._free, (self.tasks[slot], self.total[slot], rank, domain, slot))
                continue
            self.add_task(slot)
            return slot
        return None

    def add_task(self, slot: SlotId) -> None:
        """An active task more."""
        self.tasks[slot] += 1
        self.total[slot] += TASK_LOAD

    def take_backup(self, avoid_domains: frozenset[str], avoid_slots: tuple[SlotId, ...]) -> SlotId | None:
        """The least loaded slot in none of these gets one more rider; None when there is none."""
        if len(avoid_domains) >= len(self._by_domain):
            return None
        aside: list[str] = []
        found = None
        while self._tops and found is None:
            stated, domain = heappop(self._tops)
            top = self._top_of(domain)
            if stated != top:
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
        """A rider more."""
        self.total[slot] += 1


def place(
    targets: Sequence[ReplicationTargets],
    domains: Mapping[SlotId, str],
    assignment: Sequence[Assignment],
    ready: Readiness,
    hosts: Mapping[str, str],
) -> tuple[Assignment, ...]:
    """New seats for all tasks, given those that were and the slots that live, with their domains and these with hosts.

    A task whose slot is not among them gets its readiest standby's, else the slot with the fewest tasks, else waits.
    Riders that are missing or sit badly are named anew, beside the old ones, which go when the new ones are ready.
    """
    others_exist = len(set(domains.values())) > 1
    unsettled = [
        task for task, seat in enumerate(assignment) if not is_settled(targets[task], seat, domains, others_exist)
    ]
    if not unsettled:
        return tuple(assignment)
    loads = Loads(domains, assignment, hosts)
    placed = list(assignment)
    for task in unsettled:
        if placed[task].slot not in domains:
            placed[task] = placed[task]._replace(slot=_promote(TaskId(task), placed[task], loads, ready))
    for task in reversed(unsettled):  # a sink has nobody behind it who holds its log: its keeper has the choice
        placed[task] = _rebalance(TaskId(task), placed[task], targets[task], loads, ready)
    return tuple(placed)


def _promote(task: TaskId, seat: Assignment, loads: Loads, ready: Readiness) -> SlotId | None:
    candidates = [slot for slot in seat.standbys if slot in loads.domains]
    if not candidates:
        return loads.take_task()

    def unfitness(slot: SlotId) -> tuple[bool, bool, bool, int, int, SlotId]:
        reached = ready.standbys.get((slot, task))
        is_hot = (slot, task) in ready.shadows
        is_behind = reached != ready.snapshots[task]
        return not is_hot, is_behind, reached is None, -(reached or 0), loads.tasks[slot], slot

    slot = min(candidates, key=unfitness)
    loads.add_task(slot)
    return slot


def _rebalance(task: TaskId, seat: Assignment, wish: ReplicationTargets, loads: Loads, ready: Readiness) -> Assignment:
    domains = loads.domains
    living_standbys = tuple(s for s in seat.standbys if s in domains and s != seat.slot)
    living_keepers = tuple(s for s in seat.keepers if s in domains)
    if seat.slot is None:
        return Assignment(None, living_standbys, living_keepers)
    own = domains[seat.slot]
    wanted = _Riders(seat.slot, own, living_standbys, wish.standbys, (), lambda slot: ready.has_standby(slot, task))
    standbys = _rebalance_backups(wanted, loads)
    wanted = _Riders(seat.slot, own, living_keepers, wish.keepers, standbys, lambda slot: ready.has_keeper(slot, task))
    return Assignment(seat.slot, standbys, _rebalance_backups(wanted, loads))


class _Riders(NamedTuple):
    """The standbys or the keepers of a task: who is there, and how many there shall be."""

    own_slot: SlotId
    own_domain: str
    living: tuple[SlotId, ...]
    wanted: int
    preferred: tuple[SlotId, ...]
    is_ready: Callable[[SlotId], bool]


def _rebalance_backups(of: _Riders, loads: Loads) -> tuple[SlotId, ...]:
    domains, is_ready = loads.domains, of.is_ready
    backups = list(of.living)

    def sits_well(slot: SlotId) -> bool:
        return domains[slot] != of.own_domain

    while sum(map(sits_well, backups)) < of.wanted:
        has_enough = sum(slot != of.own_slot for slot in backups) >= of.wanted
        found = _another(of, backups, loads, only_elsewhere=has_enough)
        if found is None:
            break
        backups.append(found)
    if len(backups) <= of.wanted:
        return tuple(backups)
    # Two phases: the old one goes only when the new one has all, so at no moment is there nobody.
    best = sorted(backups, key=lambda slot: (not sits_well(slot), slot == of.own_slot, not is_ready(slot)))[: of.wanted]
    return tuple(slot for slot in backups if slot in best) if all(map(is_ready, best)) else tuple(backups)


def _another(of: _Riders, backups: list[SlotId], loads: Loads, only_elsewhere: bool) -> SlotId | None:
    """One more slot for a rider: on another host, in a domain that has none of it, in another one, in another slot."""
    domains = loads.domains
    taken = (of.own_slot, *backups)
    own, others = frozenset({of.own_domain}), frozenset(domains[slot] for slot in backups)
    avoided = [loads.beside(own | others), own | others, own]
    for avoid in avoided if only_elsewhere else (*avoided, frozenset[str]()):
        for slot in of.preferred:
            if slot not in taken and domains[slot] not in avoid:
                loads.add_backup(slot)
                return slot
        found = loads.take_backup(avoid, taken)
        if found is not None:
            return found
    return None


def replication_targets(plan: Plan, standbys: int, keepers: int) -> tuple[ReplicationTargets, ...]:
    """What each task shall have. One that is to be followed hot has a standby."""
    kept, hot, replicas = frozenset(plan.kept), plan.hot, plan.replicas or 0
    return tuple(
        ReplicationTargets(
            max(standbys, 1) if task in hot else standbys,
            max(keepers if task in kept else 0, replicas if task in plan.feeding else 0),
        )
        for task in plan.tasks
    )


def is_settled(wish: ReplicationTargets, seat: Assignment, domains: Mapping[SlotId, str], others_exist: bool) -> bool:
    """True when a task wants nothing: each rider is there once and, if there is another domain, sits in one."""
    slot, standbys, keepers = seat
    if slot is None or slot not in domains or len(standbys) != wish.standbys or len(keepers) != wish.keepers:
        return False
    own = domains[slot]
    for backup in (*standbys, *keepers):
        if backup not in domains or backup == slot or (others_exist and domains[backup] == own):
            return False
    return True
