"""Tables of Python objects are divided among another number of tasks as a dumb twin does it."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.values.keys import Router, state_key
from clonos.operators.event_time.source_watermarks import SourceWatermarks
from clonos.operators.state import dividing
from clonos.operators.state.declared_state import DeclaredState
from clonos.operators.state.divided_tables import OwnKeys
from clonos.operators.state.dividing import Division, StateUndivided, StateWithoutDeclaration
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_changes import DecodedSection, Section, read_section
from clonos.operators.state.state_spec import ANY, EACH, Numbers, StateKind, StateScope, StateSpec, keyed, small
from tests.unit.operators.dividing.division_twins import divided, moved, owner_of, piece_of, whole

KEYS: list[Any] = [
    *range(-3, 12),
    *"abcdefghijkl",
    "é",
    "x" * 300,
    1 << 70,
    True,
    False,
    None,
    (1, "a"),
    (2, "b"),
    (True, 1),
    b"bytes",
    date(2026, 1, 1),
    datetime(2026, 1, 1, tzinfo=UTC),
]

TUPLES: list[Any] = [(number % 7, f"user{number}") for number in range(300)]

ORDERED = "arrival"

SPECS = (
    keyed("values"),
    keyed("timers", key_place=(0, 1)),
    keyed("held", key_place=(1, 2), numbers=(Numbers(ORDERED, (0,)), Numbers(ORDERED, (1, 0)))),
    keyed("windows", numbers=(Numbers(ORDERED, (1, EACH, 0)),)),
    keyed(f"pane/{ANY}"),
    StateSpec("unmatched", StateKind.TABLE, StateScope.REFERRING, numbers=(Numbers(ORDERED, (0,)),), owner=ORDERED),
    small("watermark", StateScope.EQUAL),
    small("next", StateScope.NEXT, ORDERED),
    StateSpec("cache", StateKind.TABLE, StateScope.EMPTY),
    StateSpec("waiting", StateKind.TABLE, StateScope.DRAINED),
)
"""Of the step ``s``. Numbers of held records are in their order of arrival."""

DECLARED = DeclaredState(("s", spec) for spec in SPECS)


class Task:
    """A task with tables that change at random, and what they have as lists of entries."""

    def __init__(self, index: int, width: int, most: int, rng: random.Random) -> None:
        self.rng = rng
        self.keys = [key for key in [*KEYS, *TUPLES] if owner_of(key, width, most) == index]
        self.state = StateBackend(None)
        self.number = rng.randrange(5)
        self.pieces: list[bytes] = []
        self.entries: dict[str, dict[Any, Any]] = {}
        self.state.table("s/watermark", is_small=True).set(0, 7)
        for full in (True, False, False):
            for _ in range(rng.randrange(40)):
                self.change()
            if self.number:
                self.set("next", 0, self.number)
            self.set("cache", 0, "what is known")
            self.pieces.append(self.state.changes(full))

    def change(self) -> None:
        """One random change."""
        if not self.keys:
            return
        rng, key = self.rng, self.rng.choice(self.keys)
        name = rng.choice(["values", "values", "timers", "held", "held", "windows", "pane/-5", "pane/70", "delete"])
        if name == "values" or name.startswith("pane"):
            self.set(name, key, rng.random())
        elif name == "timers":
            self.set(name, (rng.randrange(3), key), None)
        elif name == "held":
            self.set(name, self.number, (self.number, "at", key))
            if rng.random() < 0.5:
                self.set("unmatched", self.number, None)
            self.number += rng.randrange(1, 4)
        elif name == "windows":
            self.set(name, key, [[self.number, "cell"], [None, "cell without a number"]])
            self.number += 1
        else:
            name = rng.choice(["values", "timers", "windows"])
            if self.entries.get(name):
                self.delete(name, rng.choice(list(self.entries[name])))

    def set(self, name: str, key: Any, value: Any) -> None:
        """Sets an entry."""
        stored = state_key(key)
        self.entries.setdefault(name, {})[stored] = (key, value)
        self.state.table(f"s/{name}").set(stored, value)

    def delete(self, name: str, stored: Any) -> None:
        """Deletes an entry."""
        del self.entries[name][stored]
        self.state.table(f"s/{name}").delete(stored)

    def twin(self) -> dict[str, list[Any]]:
        """The entries by key that are divided."""
        return {name: list(entries.values()) for name, entries in self.entries.items() if name not in ("cache", "next")}


def key_of_entry(name: str, entry: Any, held: dict[Any, Any]) -> Any:
    """The key of the records of an entry."""
    key, value = entry
    if name == "timers":
        return key[1]
    if name == "held":
        return value[2]
    return held[key][2] if name == "unmatched" else key


def twin_of(tasks: list[dict[str, list[Any]]], width: int, most: int) -> list[dict[str, list[Any]]]:
    """Entries of the new tasks, with new numbers."""
    found: list[dict[str, list[Any]]] = [{} for _ in range(width)]
    for new in range(width):
        base = 0
        for task in tasks:
            held = dict(task.get("held", []))
            mine = {
                name: [each for each in entries if owner_of(key_of_entry(name, each, held), width, most) == new]
                for name, entries in task.items()
            }
            numbers = {number for number, _ in mine.get("held", [])}
            numbers |= {cell[0] for _, cells in mine.get("windows", []) for cell in cells if cell[0] is not None}
            ranks: dict[int | None, int | None] = {number: base + rank for rank, number in enumerate(sorted(numbers))}
            ranks[None] = None
            base += len(numbers)
            for name, entries in mine.items():
                if name == "held":
                    entries = [(ranks[key], (ranks[key], *value[1:])) for key, value in entries]
                elif name == "unmatched":
                    entries = [(ranks[key], value) for key, value in entries]
                elif name == "windows":
                    entries = [(key, [[ranks[cell[0]], cell[1]] for cell in cells]) for key, cells in entries]
                found[new].setdefault(name, []).extend(entries)
        found[new]["next"] = [(0, base)] if base else []
    return found


def contents(image: StateImage) -> dict[str, list[Any]]:
    """What an image has of the step."""
    return {name.removeprefix("s/"): list(entries.items()) for name, entries in image.tables.items()}


def stored(task: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The same of a twin."""
    found = {name: [(state_key(key), value) for key, value in entries] for name, entries in task.items() if entries}
    return {**found, "watermark": [(0, 7)]}


widths = st.integers(1, 5)


@settings(max_examples=30, deadline=None)
@given(widths, widths, widths, st.sampled_from([5, 8, 128]), st.integers(0, 1 << 32))
def test_tables_are_divided_and_merged_as_the_twin_does_it(old: int, new: int, last: int, most: int, seed: int) -> None:
    rng = random.Random(seed)
    tasks = [Task(index, old, most, rng) for index in range(old)]
    twins = [task.twin() for task in tasks]
    pieces = [task.pieces for task in tasks]
    for width in (new, last):
        twins = twin_of(twins, width, most)
        images = divided(DECLARED, pieces, width, most)
        again = divided(DECLARED, pieces, width, most)
        assert [contents(image) for image in images] == [stored(twin) for twin in twins]
        for twin in twins:
            del twin["next"]
        pieces = [[piece_of(image)] for image in images]
        assert [[piece_of(image)] for image in again] == pieces  # equal calls give equal bytes


def test_a_whole_image_is_divided_as_its_pieces_are_and_stays_as_it_is() -> None:
    tasks = [Task(index, 3, 128, random.Random(index)) for index in range(3)]
    from_pieces = divided(DECLARED, [task.pieces for task in tasks], 2, 128)
    for index, expected in enumerate(from_pieces):
        division = Division(DECLARED, index, 2, 128)
        for task in tasks:
            image = whole(task.pieces)
            before = repr(image.tables)
            division.add(image)
            assert repr(image.tables) == before
        assert contents(division.result()) == contents(expected)


# ------------------------------------------------------------------ values of tasks


def results(scope: StateScope, old: list[dict[Any, Any]], width: int) -> list[dict[Any, Any]]:
    """What the new tasks get of a table of values."""
    declared = DeclaredState([("s", small("t", scope))])
    found = []
    for task in range(width):
        division = Division(declared, task, width, 128)
        for entries in old:
            image = StateImage()
            image.tables["s/t"] = dict(entries)
            division.add(image)
        found.append(division.result().tables.get("s/t", {}))
    return found


OLD: list[dict[Any, Any]] = [{0: 5, "a": 1}, {0: 3}, {}]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (StateScope.MIN, [{0: 3, "a": 1}] * 2),
        (StateScope.MAX, [{0: 5, "a": 1}] * 2),
        (StateScope.SUM, [{0: 8, "a": 1}, {}]),
        (StateScope.UNION, [{0: 5, "a": 1}] * 2),
        (StateScope.FIRST, [OLD[0]] * 2),
        (StateScope.DEAL, [{0: 5}, {"a": 1}]),
        (StateScope.EMPTY, [{}] * 2),
    ],
)
def test_values_of_tasks_are_combined_dealt_or_given_to_all(scope: StateScope, expected: list[dict[Any, Any]]) -> None:
    old = OLD if scope is not StateScope.DEAL else [{0: 5, "a": 1}, {}]
    assert results(scope, old, 2) == expected


def test_entries_are_dealt_in_turn_over_all_old_tasks() -> None:
    old = [{"a": 1, "b": 2, "c": 3}, {"d": 4}, {"e": 5, "f": 6}]
    assert results(StateScope.DEAL, old, 2) == [{"a": 1, "c": 3, "e": 5}, {"b": 2, "d": 4, "f": 6}]


def test_a_value_that_is_the_same_in_all_tasks_stays() -> None:
    assert results(StateScope.EQUAL, [{0: 9}, {0: 9}], 3) == [{0: 9}] * 3


def test_a_value_that_should_be_the_same_and_is_not_is_refused_with_its_step() -> None:
    with pytest.raises(StateUndivided, match=r"number of tasks of the step s cannot change.*not the same in all tasks"):
        results(StateScope.EQUAL, [{0: 9}, {0: 10}], 3)
    with pytest.raises(StateUndivided):
        results(StateScope.EQUAL, [{0: 9}, {}], 3)


def test_rows_that_wait_are_refused_with_what_to_do() -> None:
    assert results(StateScope.DRAINED, [{}, {}], 2) == [{}, {}]
    with pytest.raises(StateUndivided, match="records wait in it"):
        results(StateScope.DRAINED, [{}, {1: "row"}], 2)


def test_a_step_of_fixed_width_is_refused_with_its_reason_before_any_state_is_read() -> None:
    declared = DeclaredState([("first", small("taken", StateScope.SUM).fixed("it counts in one task"))])
    with pytest.raises(StateUndivided, match="step first cannot change: it counts in one task"):
        Division(declared, 0, 2, 128)


def test_state_that_its_step_does_not_declare_is_an_error_of_ours() -> None:
    image = StateImage()
    image.tables["s/unknown"] = {0: 1}
    piece = piece_of(image)
    with pytest.raises(StateWithoutDeclaration, match="does not declare the state s/unknown"):
        divided(DECLARED, [[piece]], 1, 128)
    with pytest.raises(StateWithoutDeclaration):
        Division(DECLARED, 0, 1, 128).add(whole([piece]))


def test_state_of_other_steps_is_left_out() -> None:
    image = StateImage()
    image.tables["other/t"], image.tables["s/values"] = {0: 1}, {"a": 2}
    assert contents(divided(DECLARED, [[piece_of(image)]], 1, 128)[0]) == {"values": [("a", 2)]}


def test_keys_of_a_table_are_those_that_a_router_sends_to_the_task() -> None:
    tasks = moved([[(key, 0) for key in [*KEYS, *TUPLES]]], lambda entry: entry[0], 3, 128)
    image = StateImage()
    image.tables["s/values"] = {state_key(key): 0 for key in [*KEYS, *TUPLES]}
    piece = piece_of(image)
    for found, expected in zip(divided(DECLARED, [[piece]], 3, 128), tasks, strict=True):
        assert list(found.tables["s/values"]) == [state_key(key) for key, _ in expected]


def test_state_by_key_of_an_old_task_without_own_key_groups_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    def read(section: Section) -> DecodedSection:
        decoded.append(section.name)
        return read_section(section)

    monkeypatch.setattr(dividing, "read_section", read)
    declared = DeclaredState([("s", keyed("values")), ("s", small("watermark", StateScope.EQUAL))])
    pieces = []
    for index in range(2):
        image = StateImage()
        own = [key for key in KEYS if owner_of(key, 2, 128) == index]
        image.tables["s/values"] = {state_key(key): index for key in own}
        image.tables["s/watermark"] = {0: 7}
        pieces.append([piece_of(image)])
    images = divided(declared, pieces, 4, 128)
    assert decoded == ["s/values", "s/watermark", "s/watermark"] * 2 + ["s/watermark", "s/values", "s/watermark"] * 2
    assert [image.tables["s/watermark"] for image in images] == [{0: 7}] * 4
    found = [[index for _ in image.tables["s/values"]] for index, image in enumerate(images)]
    assert found == [[index for key in KEYS if owner_of(key, 4, 128) == index] for index in range(4)]


def test_tuples_of_one_part_are_divided_as_a_router_divides_them() -> None:
    keys = [(number,) for number in range(100)]
    (routed,) = Router(3, 128).split(keys, keys)
    assert [OwnKeys(task, 3, 128).of(keys, keys)[0] for task in range(3)] == routed


def test_the_event_time_of_an_input_is_the_least_of_all_old_tasks() -> None:
    states = []
    for reached_ns in (30, 10):
        times = SourceWatermarks([0], 0, 0)
        times.begin(0)
        times.reach(0, reached_ns)
        states.append({0: times.state()})
    for result in results(StateScope.TIMES, states, 3):
        restored = SourceWatermarks([0], 0, 0)
        restored.restore(result[0])
        assert restored.reached_ns(0) == 10
