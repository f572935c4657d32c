"""Placement: anti-affinity over domains and hosts, promotion, backup changes in two phases, depth by domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.placement.assignment import (
    NO_ASSIGNMENT,
    Assignment,
    Readiness,
    ReplicationTargets,
    place,
    replication_targets,
)
from clonos.core.placement.survivability import depth_problem, losses_survived, what_is_not_survived
from tests.harnesses.coordinator_harness import chain_plan


def _slots(domains: str, first: int = 1) -> dict[SlotId, str]:
    return {SlotId(number): domain for number, domain in enumerate(domains, first)}


def _ready(
    count: int, standbys: dict[tuple[int, int], int] | None = None, keepers: dict[tuple[int, int], int] | None = None
) -> Readiness:
    """Every task restores checkpoint 7 and is in incarnation 9."""
    return Readiness(
        {(SlotId(s), TaskId(t)): CheckpointId(at) for (s, t), at in (standbys or {}).items()},
        {(SlotId(s), TaskId(t)): Incarnation(by) for (s, t), by in (keepers or {}).items()},
        [CheckpointId(7)] * count,
        [Incarnation(9)] * count,
    )


def _assigned(slot: int, standbys: Sequence[int] = (), keepers: Sequence[int] = ()) -> Assignment:
    return Assignment(SlotId(slot), tuple(map(SlotId, standbys)), tuple(map(SlotId, keepers)))


def _slot_of(assigned: Assignment) -> SlotId:
    assert assigned.slot is not None, assigned
    return assigned.slot


def _place(
    target: ReplicationTargets,
    domains: dict[SlotId, str],
    assignment: Sequence[Assignment],
    ready: Readiness | None = None,
) -> tuple[Assignment, ...]:
    return place([target] * len(assignment), domains, assignment, ready or _ready(len(assignment)), {})


def test_active_tasks_are_placed_one_per_slot_in_alternating_domains() -> None:
    assignment = _place(ReplicationTargets(0, 0), _slots("aaabbb"), [NO_ASSIGNMENT] * 4)
    assert len({assigned.slot for assigned in assignment}) == 4
    assert Counter(_slots("aaabbb")[_slot_of(assigned)] for assigned in assignment) == {"a": 2, "b": 2}


def test_standbys_and_keepers_are_placed_in_another_domain() -> None:
    domains = _slots("aaabbb")
    for assigned in _place(ReplicationTargets(1, 1), domains, [NO_ASSIGNMENT] * 6):
        assert domains[assigned.standbys[0]] != domains[_slot_of(assigned)]
        assert assigned.keepers == assigned.standbys  # the standby's slot where it has one


def test_two_standbys_are_placed_in_two_other_domains_when_available() -> None:
    domains = _slots("aabbcc")
    for assigned in _place(ReplicationTargets(2, 0), domains, [NO_ASSIGNMENT] * 6):
        assert len({domains[slot] for slot in (_slot_of(assigned), *assigned.standbys)}) == 3


def test_backups_are_spread_evenly() -> None:
    domains = _slots("abcd" * 5)
    assignment = _place(ReplicationTargets(1, 0), domains, [NO_ASSIGNMENT] * 20)
    assert max(Counter(slot for assigned in assignment for slot in assigned.standbys).values()) <= 2


def test_standbys_are_placed_in_spare_slots_so_that_a_promoted_task_has_its_own_slot() -> None:
    domains = _slots("abcdef")
    assignment = _place(ReplicationTargets(1, 1), domains, [NO_ASSIGNMENT] * 4)
    spare = set(domains) - {assigned.slot for assigned in assignment}
    assert Counter(assigned.standbys[0] for assigned in assignment) == dict.fromkeys(spare, 2)


def test_a_single_spare_slot_hosts_the_standbys_of_the_last_tasks() -> None:
    """The last tasks' logs have no holder downstream, so they need a backup most."""
    assignment = _place(ReplicationTargets(1, 1), _slots("abcdefg"), [NO_ASSIGNMENT] * 6)
    (spare,) = set(_slots("abcdefg")) - {assigned.slot for assigned in assignment}
    assert [assigned.keepers == (spare,) for assigned in assignment] == [False, False, False, False, True, True]


def test_a_backup_prefers_another_host() -> None:
    domains = _slots("abc")
    hosts = {"a": "one", "b": "one", "c": "two"}
    (assigned,) = place([ReplicationTargets(1, 0)], domains, [_assigned(1)], _ready(1), hosts)
    assert assigned.standbys == (3,)


def test_with_one_domain_backups_are_placed_in_another_slot() -> None:
    for assigned in _place(ReplicationTargets(1, 1), _slots("aaa"), [NO_ASSIGNMENT] * 3):
        assert assigned.slot not in (*assigned.standbys, *assigned.keepers)
        assert len(assigned.standbys) == len(assigned.keepers) == 1


def test_with_one_slot_no_backup_is_placed() -> None:
    assert _place(ReplicationTargets(1, 1), _slots("a"), [NO_ASSIGNMENT]) == (_assigned(1),)


def test_a_live_task_is_never_moved() -> None:
    assignment = [_assigned(1), _assigned(1), _assigned(1)]
    assert [assigned.slot for assigned in _place(ReplicationTargets(1, 0), _slots("abab"), assignment)] == [1, 1, 1]


def test_the_standby_that_is_ready_at_the_completed_checkpoint_is_promoted() -> None:
    ready = _ready(1, standbys={(2, 0): 6, (3, 0): 7})
    (assigned,) = _place(ReplicationTargets(2, 0), _slots("bcd", 2), [_assigned(1, [2, 3])], ready)
    assert assigned.slot == 3
    assert 2 in assigned.standbys
    assert 3 not in assigned.standbys


def test_another_standby_is_promoted_than_the_one_beside_the_only_keeper() -> None:
    standbys, whole = {(2, 0): 7, (3, 0): 6}, {(2, 0): 9, (4, 0): 9}
    for keepers, ready, slot in (
        ([2], _ready(1, standbys, whole), 3),
        ([9, 2], _ready(1, standbys, whole), 3),
        ([2, 4], _ready(1, standbys, whole), 2),
        ([2, 4], _ready(1, standbys, {(2, 0): 9}), 3),  # slot 4 has not got the log yet
        ([2], _ready(1, {(2, 0): 7}, whole), 2),  # slot 3 would load the whole state
    ):
        (assigned,) = _place(ReplicationTargets(2, 1), _slots("bcd", 2), [_assigned(1, [2, 3], keepers)], ready)
        assert assigned.slot == slot, keepers


def test_a_standby_that_is_not_ready_is_preferred_to_a_free_slot() -> None:
    (assigned,) = _place(ReplicationTargets(1, 0), _slots("bcd", 2), [_assigned(1, [3])])
    assert assigned.slot == 3


def test_without_a_standby_the_slot_with_the_fewest_tasks_is_chosen() -> None:
    assignment = _place(ReplicationTargets(0, 0), _slots("abc", 2), [_assigned(1), _assigned(2), _assigned(3)])
    assert assignment[0].slot == 4


def test_without_any_slot_a_task_is_unplaced_and_drops_its_dead_backups() -> None:
    assert _place(ReplicationTargets(1, 1), {}, [_assigned(1, [2], [2])]) == (NO_ASSIGNMENT,)


def test_a_dead_standby_is_replaced() -> None:
    (assigned,) = _place(ReplicationTargets(1, 0), _slots("ac"), [_assigned(1, [9])])
    assert assigned.standbys == (2,)


def test_a_new_keeper_is_added_while_the_old_live_one_stays() -> None:
    domains = _slots("aab")
    before = [_assigned(1, [], [2])]  # in the task's own domain, for there was no other
    (assigned,) = _place(ReplicationTargets(0, 1), domains, before, _ready(1, keepers={(2, 0): 9}))
    assert assigned.keepers == (2, 3)


def test_the_old_keeper_stays_until_the_new_one_holds_the_whole_log_of_the_incarnation() -> None:
    domains = _slots("aab")
    assigned = _assigned(1, [], [2, 3])
    assert _place(ReplicationTargets(0, 1), domains, [assigned], _ready(1, keepers={(3, 0): 8}))[0].keepers == (2, 3)
    assert _place(ReplicationTargets(0, 1), domains, [assigned], _ready(1, keepers={(3, 0): 9}))[0].keepers == (3,)


def test_a_keeper_whose_slot_now_hosts_its_task_stays_until_another_is_ready() -> None:
    # The only copy of a sink's log may lie in the slot into which the sink is promoted.
    domains = _slots("ba", 2)
    (promoted,) = _place(ReplicationTargets(1, 1), domains, [_assigned(1, [2], [2])])
    assert promoted.slot == 2
    assert promoted.keepers == (2, 3)
    (assigned,) = _place(ReplicationTargets(1, 1), domains, [promoted], _ready(1, keepers={(2, 0): 9, (3, 0): 9}))
    assert assigned.keepers == (3,)


def test_a_standby_in_its_tasks_domain_is_replaced_when_another_domain_joins() -> None:
    domains = _slots("aab")
    (beside,) = _place(ReplicationTargets(1, 0), domains, [_assigned(1, [2])])
    assert beside.standbys == (2, 3)
    (alone,) = _place(ReplicationTargets(1, 0), domains, [beside], _ready(1, standbys={(3, 0): 7}))
    assert alone.standbys == (3,)


def test_a_balanced_placement_does_not_change() -> None:
    domains = _slots("abab")
    once = _place(ReplicationTargets(1, 1), domains, [NO_ASSIGNMENT] * 4)
    assert _place(ReplicationTargets(1, 1), domains, once) == once


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    st.lists(st.lists(st.integers(0, 11), max_size=4), min_size=1, max_size=6),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(1, 6),
)
def test_after_every_sequence_of_losses_and_arrivals_tasks_are_placed_in_live_slots(
    first: list[str], losses: list[list[int]], standbys: int, keepers: int, tasks: int
) -> None:
    domains = {SlotId(number): domain for number, domain in enumerate(first, 1)}
    assignment: Sequence[Assignment] = [NO_ASSIGNMENT] * tasks
    number = len(domains)
    for lost in losses:
        for index in lost:
            domains.pop(SlotId(index + 1), None)
        before = assignment
        assignment = _place(ReplicationTargets(standbys, keepers), domains, assignment)
        for old, assigned in zip(before, assignment, strict=True):
            assert (assigned.slot is None) == (not domains)
            assert assigned.slot == old.slot or old.slot not in domains
            for backups, wanted in ((assigned.standbys, standbys), (assigned.keepers, keepers)):
                assert len(set(backups)) == len(backups)
                assert set(backups) <= set(domains)
                others = [slot for slot in domains if slot != assigned.slot]
                elsewhere = [slot for slot in others if domains[slot] != domains.get(_slot_of(assigned))]
                assert len(backups) >= min(wanted, len(others))
                if assigned.slot is not None:
                    assert sum(slot in elsewhere for slot in backups) >= min(wanted, len(elsewhere))
            assert assigned.slot not in assigned.standbys
        number += 1
        domains[SlotId(number)] = "abc"[number % 3]


def _run_plan(*domains: str, depth: int) -> tuple[Plan, list[Assignment], dict[SlotId, str]]:
    """A chain of single tasks, one in each of these domains."""
    count = len(domains)
    plan = Plan(
        "job",
        tuple(Vertex(f"v{i}", 1, is_source=i == 0) for i in range(count)),
        tuple(Edge(i, i + 1, Partitioning.FORWARD, 0) for i in range(count - 1)),
        sharing_depth=depth,
    )
    return plan, [_assigned(i + 1) for i in range(count)], _slots("".join(domains))


def test_a_depth_below_the_longest_run_inside_a_domain_is_refused_by_name() -> None:
    problem = depth_problem(*_run_plan("a", "b", "b", "b", "a", depth=2))
    assert problem is not None
    assert "domain b holds 3 consecutive tasks" in problem
    assert "sharing_depth=3" in problem
    assert depth_problem(*_run_plan("a", "b", "b", "b", "a", depth=3)) is None


def test_a_run_at_the_end_of_a_path_needs_no_depth() -> None:
    assert depth_problem(*_run_plan("a", "b", "b", "b", depth=1)) is None


def test_full_sharing_has_no_depth_problem() -> None:
    plan, assignment, domains = _run_plan("a", "a", "a", "b", depth=0)
    full = Plan(plan.job_name, plan.vertices, plan.edges)
    assert depth_problem(full, assignment, domains) is None
    assert depth_problem(plan, assignment, domains) is not None


def test_without_a_depth_a_task_that_others_depend_on_survives_any_losses() -> None:
    plan, assignment, domains = _run_plan("a", "a", "b", depth=0)
    full = Plan(plan.job_name, plan.vertices, plan.edges)
    assert losses_survived(full, assignment, {}, domains) == (None, None, None)


def test_with_a_depth_a_task_survives_no_loss_of_a_domain_that_holds_a_longer_run() -> None:
    plan, assignment, domains = _run_plan("a", "b", "b", "a", depth=1)
    assert losses_survived(plan, assignment, {}, domains) == (1, 0, 0, None)
    plan, assignment, domains = _run_plan("a", "b", "b", "a", depth=2)
    assert losses_survived(plan, assignment, {}, domains) == (1, 1, 1, None)


def test_a_task_with_effects_survives_as_many_losses_as_it_has_keepers_elsewhere() -> None:
    plan, assignment, domains = _run_plan("a", "b", "c", depth=0)
    acting = replace(plan.vertices[1], has_effects=True)
    plan = replace(plan, vertices=(plan.vertices[0], acting, plan.vertices[2]), sharing_depth=None)
    assert losses_survived(plan, assignment, {TaskId(1): 2}, domains) == (None, 2, None)
    assert losses_survived(plan, assignment, {}, domains) == (None, 0, None)


def _longest_run_by_paths(plan: Plan, domain_of: list[str]) -> int:
    """The dumb twin: walks every path."""
    worst = 0

    def walk(task: int, run: int) -> None:
        nonlocal worst
        for channel in plan.outputs[task]:
            if channel.receiver is None:
                continue
            if domain_of[channel.receiver] == domain_of[task]:
                walk(channel.receiver, run + 1)
            else:
                worst = max(worst, run)
                walk(channel.receiver, 1)

    for task in plan.tasks:
        walk(task, 1)
    return worst


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from("ab"), min_size=8, max_size=8), st.integers(0, 5), st.booleans())
def test_the_depth_check_agrees_with_walking_every_path(domains: list[str], depth: int, is_forward: bool) -> None:
    kind = Partitioning.FORWARD if is_forward else Partitioning.HASH
    plan = Plan(
        "job",
        tuple(Vertex(f"v{i}", 2, is_source=i == 0) for i in range(4)),
        (Edge(0, 1, kind, 0), Edge(1, 2, Partitioning.HASH, 0), Edge(2, 3, kind, 0), Edge(0, 3, kind, 1)),
        sharing_depth=depth,
    )
    assignment = [_assigned(task + 1) for task in plan.tasks]
    problem = depth_problem(plan, assignment, _slots("".join(domains)))
    assert (problem is not None) == (_longest_run_by_paths(plan, domains) > depth)


def test_a_warning_names_the_tasks_that_the_death_of_a_domain_would_lose() -> None:
    plan = chain_plan(1, has_effects=True)
    targets = replication_targets(plan, 1, 1)
    assignment = [_assigned(1, [2]), _assigned(2, [3]), _assigned(3, [2], [1])]
    text = what_is_not_survived(plan, targets, assignment, _slots("aab"))
    assert "1 tasks (source/0) have too few standbys" in text
    assert "keepers" not in text
    assert what_is_not_survived(plan, targets, assignment, _slots("aba")) != ""
    assert (
        what_is_not_survived(
            plan, targets, [_assigned(1, [3]), _assigned(2, [3]), _assigned(3, [1], [1])], _slots("aab")
        )
        == ""
    )


def test_a_task_whose_output_waits_for_a_keeper_has_its_own_warning() -> None:
    plan = chain_plan(1, has_effects=True)
    text = what_is_not_survived(
        plan, replication_targets(plan, 0, 1), [_assigned(1), _assigned(1), _assigned(1)], _slots("a")
    )
    assert text.startswith("1 tasks (sink/0) have no keeper: their external output waits")


def test_tasks_with_replicas_in_too_few_domains_are_warned_of_and_still_start() -> None:
    plan = replace(chain_plan(1), replicas=2)
    targets = replication_targets(plan, 0, 1)
    assert [target.keepers for target in targets] == [2, 2, 0]
    text = what_is_not_survived(
        plan, targets, [_assigned(1, [], [2, 3]), _assigned(1, [], [2, 4]), _assigned(1)], _slots("abbc")
    )
    assert text.startswith("1 tasks (source/0) have keepers in fewer than 2 other domains")
    assert "effects" not in text
    assert "waits" not in text
