"""Every stateful step goes on with another number of tasks, and back, as if nothing had been."""

from __future__ import annotations

import importlib
import pkgutil
import re
from random import Random
from typing import Any

import pytest

import clonos.operators
from clonos.agg import count
from clonos.api.emission import every
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.operators.operator import Operator
from clonos.operators.state.column_table import ColumnTable
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.dividing import BY_KEY, StateUndivided
from clonos.operators.state.state_descriptors import MapState, ValueState
from clonos.operators.state.state_spec import ANY, StateSpec
from tests.unit.operators.dividing.rescaling import rescaled
from tests.unit.operators.dividing.stateful_steps import CASES, Streams, build
from tests.unit.operators.driver import Given, Outbox, Run


def turns(running: Run, rng: Random, count: int) -> None:
    """Some reads, and seconds that pass."""
    for _ in range(count):
        running.read(rng.randrange(2, 12))
        running.drain()
        running.pass_time(rng.choice((0, 1, 3)))


def key_of(row: Any) -> str:
    """What the rows of one key have in common, at least."""
    if isinstance(row, dict):
        return repr((row.get("key"), row.get("part")))
    first = next(each for each in row if each is not None) if isinstance(row, tuple) and any(row) else None
    return key_of(first) if isinstance(first, dict) else repr(row[0])


def by_key(rows: list[Any]) -> dict[str, list[str]]:
    """Rows of each key in their order."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(key_of(row), []).append(repr(row))
    return found


def written(name: str, kind: str, seed: int, widths: list[int]) -> dict[str, Any]:
    """What reaches the sinks of a case whose steps have each of these widths in turn, by key."""
    graph = JobGraph("job")
    build(graph, name, kind, seed)
    rng = Random(seed)
    running = Run(graph.compile(Options(), parallelism=widths[0]))
    for checkpoint, width in enumerate(widths):
        if checkpoint and width:
            running = rescaled(running, checkpoint, width)
        turns(running, rng, 5)
        if rng.random() < 0.5:
            running.barrier(checkpoint + 1)
        turns(running, rng, 2)
    running.finish()
    running.close()
    return {sink: by_key(rows) for sink, rows in running.written.items()}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, case in CASES.items() for kind in case.kinds])
def test_a_step_that_is_divided_and_merged_gives_what_it_does_at_one_width(name: str, kind: str) -> None:
    seed = sum(map(ord, name))
    rng = Random(seed)
    widths: Any = [2, *rng.sample([1, 3, 4, 5], 3), 2]
    assert written(name, kind, seed, widths) == written(name, kind, seed, [2, 0, 0, 0, 0])


class Ruled:
    """Broadcast rules beside state of keys."""

    rules = MapState[str, int]("rules")
    limit = ValueState("limit", 0)
    seen = ValueState("seen", 0)

    def process_first(self, value: int, context: Any) -> None:
        seen = context.state(self.seen)
        seen.value += 1
        rules, limit = context.broadcast_state(self.rules), context.broadcast_state(self.limit)
        context.emit((value % 7, seen.value, sorted(rules.items()), limit.value))

    def process_second(self, value: int, context: Any) -> None:
        context.broadcast_state(self.rules)[f"rule {value}"] = value
        context.broadcast_state(self.limit).value = value


def test_each_task_of_a_keyed_step_has_the_broadcast_state_at_another_width() -> None:
    graph = JobGraph("job")
    rules = graph.source(Given(range(3)), parallelism=1)
    numbers = graph.source(Given(range(140)), parallelism=1).key_by(lambda n: n % 7)
    numbers.connect(rules.broadcast()).process(Ruled(), name="step").sink(Outbox(), name="out")
    running = Run(graph.compile(Options(), parallelism=2))
    (vertex,) = (each for each in running.plan.vertices if each.name == "step")
    assert not vertex.fixed
    running.read(3)
    running.drain()
    first = len(next(iter(running.written.values())))
    for checkpoint, width in enumerate((3, 5, 1), 1):
        running = rescaled(running, checkpoint, width)
        turns(running, Random(1), 3)
    running.finish()
    running.close()
    (written,) = running.written.values()
    rows = written[first:]
    assert {(tuple(rules), limit) for _, _, rules, limit in rows} == {
        ((("rule 0", 0), ("rule 1", 1), ("rule 2", 2)), 2)
    }
    assert {seen for _, seen, _, _ in written} == {*range(1, 21)}


REFUSED: dict[str, tuple[Any, str]] = {
    "limit": (lambda stream: stream.rebalance().limit(500, name="step"), "counts the records that it passes on"),
    "merge": (lambda stream: stream.merge_ordered(stream, name="step"), "its records have no key"),
    "all records": (lambda stream: stream.rebalance().aggregate(n=count(), name="step"), "its records have no key"),
    "flush": (lambda stream: stream.rebalance().sink(Outbox(), flush=every("90s"), name="step"), "records wait in it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_whose_state_cannot_be_divided_is_refused_with_its_name(name: str) -> None:
    add, reason = REFUSED[name]
    graph = JobGraph("job")
    step = add(Streams(graph, 1, is_column=False).stream())
    if step is not None:
        step.sink(Outbox(), name="out")
    running = Run(graph.compile(Options(), parallelism=2))
    turns(running, Random(1), 5)
    with pytest.raises(StateUndivided, match=f"number of tasks of the step step.* cannot change: .*{reason}"):
        rescaled(running, 1, 3)


# ------------------------------------------------------------------ no operator without a case


BESIDE_CALLS = {
    (name, "table") for name in ("events", "suspended calls", "records after suspended calls", "timeouts of events")
}
"""State that test_awaited_events divides."""

NOT_DIVIDED_BY_KEY = {
    "AssignTimestamps",  # values of tasks: test_divided_tables
    "AsyncMap",
    "AsyncStatefulMap",  # its calls end before its state moves: test_stateful_calls, test_awaited_events
    "Enrich",
    "EnrichBatch",
    "FinalTotal",
    "Flush",
    "Gather",
    "JournalHead",
    "Limit",
    "PartialStep",
    "SourceHead",
}
"""Operators without state by key: what they have is equal in all tasks, drained, dealt, or holds the width."""

HANDED_ON = re.compile(r"\w+_specs?")
"""Attributes by which classes declare state."""


def modules() -> list[Any]:
    """All modules of operators."""
    found = pkgutil.walk_packages(clonos.operators.__path__, "clonos.operators.")
    return [importlib.import_module(each.name) for each in found]


def declaring() -> dict[str, type]:
    """Classes of operators, and of what they are made of, that declare state."""
    return {
        each.__name__: each
        for module in modules()
        for each in vars(module).values()
        if isinstance(each, type)
        and each.__module__ == module.__name__
        and each not in (Operator, StepState, ColumnTable)
        and not getattr(each, "_is_protocol", False)
        and any(map(HANDED_ON.fullmatch, vars(each)))
    }


def made_by_cases() -> tuple[set[type], list[StateSpec]]:
    """Classes of the operators of all cases and of what they are made of, and what they declare."""
    classes: set[type] = set()
    specs: list[StateSpec] = []
    for name, case in CASES.items():
        for kind in case.kinds:
            graph = JobGraph("job")
            build(graph, name, kind, 0)
            for vertex in graph.compile(Options(), parallelism=2).vertices:
                specs += [spec for _, spec in vertex.declared_state()]
                for node in vertex.nodes:
                    add_parts(node.make(), classes, depth=3)
    return classes, specs


def add_parts(item: Any, classes: set[type], depth: int) -> None:
    """Adds the class of an object, its bases, and those of its parts."""
    classes.update(type(item).__mro__)
    parts = item if isinstance(item, list | tuple) else getattr(item, "__dict__", {}).values()
    for each in parts if depth else ():
        add_parts(each, classes, depth - 1)


def test_every_operator_that_declares_state_has_a_case() -> None:
    classes, _ = made_by_cases()
    missing = {name for name, each in declaring().items() if each not in classes} - NOT_DIVIDED_BY_KEY
    assert not missing, f"add cases to stateful_steps.py for {sorted(missing)}"
    assert {*declaring()} >= NOT_DIVIDED_BY_KEY, "a class of this name declares no state"


def test_every_declaration_of_state_by_key_has_a_case() -> None:
    _, specs = made_by_cases()
    declared = {
        (each.name, each.kind)
        for module in modules()
        for value in vars(module).values()
        for each in (value if isinstance(value, tuple) else (value,))
        if isinstance(each, StateSpec) and each.scope in BY_KEY
    }
    missing = [
        (name, str(kind))
        for name, kind in sorted(declared)
        if not any(
            spec.kind is kind and re.fullmatch(re.escape(name).replace(re.escape(ANY), ".+"), spec.name)
            for spec in specs
        )
        and (name, kind.value) not in BESIDE_CALLS
    ]
    assert not missing, f"add cases to stateful_steps.py for {missing}"
