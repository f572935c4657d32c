"""Plans that the tests of the core share (chains, a diamond, a shuffle), and views of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clonos.core.model.ids import CheckpointId, Incarnation, SlotId, TaskId, ViewNumber, view_number
from clonos.core.model.plan import Edge, Partitioning, Plan, Vertex
from clonos.core.wire.control_messages import Placement, SlotAddress, View

FORWARD, HASH = Partitioning.FORWARD, Partitioning.HASH


def chain_of(length: int, sharing_depth: int | None = None, parallelism: int = 1, is_journalled: bool = False) -> Plan:
    """Tasks in a row: ``a -> b -> c``; the first is a source (with a journal?), the last has external output."""
    vertices = tuple(
        Vertex(
            "abcdefgh"[i],
            parallelism,
            is_source=i == 0,
            has_effects=i == length - 1,
            is_journalled=i == 0 and is_journalled,
        )
        for i in range(length)
    )
    edges = tuple(Edge(i, i + 1, FORWARD, 0) for i in range(length - 1))
    external = (Edge(length - 1, None, Partitioning.EXTERNAL, 0),)
    return Plan("chain", vertices, edges + external, sharing_depth=sharing_depth)


def diamond(sharing_depth: int | None = None) -> Plan:
    """``a -> b -> d -> e`` and ``a -> c -> d``."""
    vertices = (Vertex("a", 1, is_source=True), *(Vertex(name, 1) for name in "bcd"), Vertex("e", 1))
    edges = (
        Edge(0, 1, FORWARD, 0),
        Edge(0, 2, FORWARD, 0),
        Edge(1, 3, FORWARD, 0),
        Edge(2, 3, FORWARD, 0),
        Edge(3, 4, FORWARD, 0),
    )
    return Plan("diamond", vertices, edges, sharing_depth=sharing_depth)


def shuffle(width: int = 2) -> Plan:
    """As many maps as sources, shuffled by key."""
    vertices = (Vertex("source", width, is_source=True), Vertex("count", width))
    return Plan("shuffle", vertices, (Edge(0, 1, HASH, 0),))


def placement(task: int, incarnation: int, slot: int | None, **changes: object) -> Placement:
    """Placement of a fresh task in a slot."""
    home = None if slot is None else SlotId(slot)
    base = Placement(TaskId(task), Incarnation(incarnation), home, CheckpointId(0), (), 0, True, False, (), ())
    return msgspec.structs.replace(base, **changes)


def view(n: int, placements: Sequence[Placement], generation: int = 1, slots: Sequence[int] = ()) -> View:
    """View (1, n) with these placements; every slot is a separate domain."""
    named = slots or sorted({p.slot for p in placements if p.slot is not None})
    addresses = tuple(SlotAddress(SlotId(s), f"domain-{s}", "", "", b"") for s in named)
    return View(number(n), generation, "job", addresses, tuple(placements))


def number(n: int) -> ViewNumber:
    """The n-th view of the first term."""
    return view_number(1, n)
