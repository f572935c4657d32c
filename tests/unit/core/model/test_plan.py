"""Conformance A 4 and A 6: holders of logs, logs on channels, and plans of any size."""

from __future__ import annotations

import pytest

from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from tests.harnesses.sample_plans import FORWARD, HASH, chain_of, diamond, shuffle

DEPTHS = (0, 1, 2, 3, None)

CHAIN_HOLDERS: dict[int | None, list[str]] = {
    0: ["", "", "", "", ""],
    1: ["b", "c", "d", "e", ""],
    2: ["bc", "cd", "de", "e", ""],
    3: ["bcd", "cde", "de", "e", ""],
    None: ["bcde", "cde", "de", "e", ""],
}
DIAMOND_HOLDERS: dict[int | None, list[str]] = {
    0: ["", "", "", "", ""],
    1: ["bc", "d", "d", "e", ""],
    2: ["bcd", "de", "de", "e", ""],
    3: ["bcde", "de", "de", "e", ""],
    None: ["bcde", "de", "de", "e", ""],
}


def named(plan: Plan, tasks: tuple[int, ...]) -> str:
    return "".join(plan.task_name(task)[0] for task in tasks)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a4_holders_on_a_chain_of_five(depth: int | None) -> None:
    plan = chain_of(5, depth)
    assert [named(plan, tasks) for tasks in plan.holders] == CHAIN_HOLDERS[depth]


@pytest.mark.parametrize("depth", DEPTHS)
def test_a4_holders_on_a_diamond_count_the_shortest_path(depth: int | None) -> None:
    plan = diamond(depth)
    assert [named(plan, tasks) for tasks in plan.holders] == DIAMOND_HOLDERS[depth]


def test_a4_the_shortest_path_counts_where_one_arm_is_longer() -> None:
    vertices = (Vertex("a", 1, is_source=True), *(Vertex(name, 1) for name in "bcd"))
    edges = (Edge(0, 1, FORWARD, 0), Edge(1, 2, FORWARD, 0), Edge(2, 3, FORWARD, 0), Edge(0, 3, FORWARD, 0))
    plan = Plan("arms", vertices, edges, sharing_depth=1)
    assert named(plan, plan.holders[0]) == "bd"
    # c holds nothing of a, so on c -> d only what d shall hold of c and b travels, and a's log on a -> d.
    assert [named(plan, tasks) for tasks in plan.shared_on] == ["a", "b", "c", "a"]


@pytest.mark.parametrize("plan", [chain_of(5, d) for d in DEPTHS] + [diamond(d) for d in DEPTHS])
def test_a4_every_held_log_arrives_hop_by_hop_on_some_path(plan: Plan) -> None:
    arriving: dict[int, set[int]] = {task: set() for task in plan.tasks}
    for channel in plan.channels:
        if channel.receiver is not None:
            shared = set(plan.shared_on[channel.id])
            assert shared <= {channel.sender, *plan.held[channel.sender]}  # the sender has it
            arriving[channel.receiver] |= shared
    assert {task: tuple(sorted(logs)) for task, logs in arriving.items()} == dict(enumerate(plan.held))


def test_holders_and_held_are_each_others_inverse() -> None:
    plan = diamond(2)
    pairs = {(owner, holder) for owner, holders in enumerate(plan.holders) for holder in holders}
    assert pairs == {(owner, holder) for holder, owners in enumerate(plan.held) for owner in owners}


def test_a4_a_shuffle_shares_the_log_of_every_sender_with_every_receiver() -> None:
    plan = shuffle(2)
    assert plan.holders == ((2, 3), (2, 3), (), ())
    assert [(c.sender, c.receiver) for c in plan.channels] == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert plan.shared_on == ((0,), (0,), (1,), (1,))


def test_a_channel_to_an_external_system_has_no_log_holder() -> None:
    plan = chain_of(2)
    assert plan.shared_on == ((0,), ())
    assert plan.with_keepers == (1,)
    assert plan.sources == (0,)


def test_a6_a_plan_may_have_forty_thousand_tasks_and_more_than_127_outputs_per_task() -> None:
    forward = chain_of(4, 1, parallelism=10_001)
    assert len(forward.tasks) == 40_004
    assert forward.task_name(40_003) == "d/10000"
    assert forward.holders[9_999] == (20_000,)
    wide = Plan("wide", (Vertex("a", 2, True), Vertex("b", 300)), (Edge(0, 1, HASH, 0),))
    assert [len(channels) for channels in wide.outputs[:2]] == [300, 300]
    assert len(wide.holders[0]) == 300


def test_each_task_has_one_external_channel_without_a_receiving_task() -> None:
    vertices = (Vertex("a", 3, is_source=True, has_effects=True),)
    plan = Plan("sink", vertices, (Edge(0, None, Partitioning.EXTERNAL, 0),))
    assert [(c.sender, c.receiver) for c in plan.channels] == [(0, None), (1, None), (2, None)]
    assert plan.inputs == ((), (), ())


def test_a_plan_with_other_widths_has_them_in_all_vertices_that_forward_edges_connect() -> None:
    names = [Vertex("a", 2, is_source=True), Vertex("b", 2), Vertex("c", 2), Vertex("d", 1)]
    edges = (Edge(0, 1, HASH, 0), Edge(1, 2, FORWARD, 0), Edge(2, 3, HASH, 0))
    plan = Plan("widths", tuple(names), edges)
    wider = plan.with_widths({"c": 4})
    assert [vertex.parallelism for vertex in wider.vertices] == [2, 4, 4, 1]
    assert plan.scaling_group == (0, 1, 1, 3)
    assert wider.with_widths({"b": 2}) == plan
