"""Tables in columns and row stores are divided among another number of tasks as a dumb twin does it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.operators.state.column_spec import ColumnSizes, ColumnSpec
from clonos.operators.state.declared_state import DeclaredState
from clonos.operators.state.dividing import StateUndivided
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_spec import ANY, KEY_COLUMN, Numbers, StateKind, StateScope, StateSpec
from tests.unit.operators.dividing.division_twins import divided, owner_of, piece_of, whole

HELD = 3
"""Rows that a key has at most."""

TABLED = 1 << 31

DECLARED = DeclaredState(
    ("s", spec)
    for spec in (
        StateSpec(
            "totals",
            StateKind.COLUMNS,
            StateScope.KEYED,
            numbers=(Numbers("rows", "held"), Numbers("texts", "text", first=1), Numbers("arrival", "number")),
        ),
        StateSpec("rows", StateKind.ROWS, StateScope.REFERRED, owner="totals"),
        StateSpec("texts", StateKind.ROWS, StateScope.REFERRED, owner="totals"),
        StateSpec(
            "order", StateKind.COLUMNS, StateScope.REFERRING, owner="totals", numbers=(Numbers("totals", KEY_COLUMN),)
        ),
        StateSpec(
            "members",
            StateKind.COLUMNS,
            StateScope.REFERRING,
            owner="totals",
            numbers=(
                Numbers("totals", KEY_COLUMN, first_bit=32, bits=31),
                Numbers("shared", KEY_COLUMN, bits=31, if_bit=31),
            ),
        ),
        StateSpec("shared", StateKind.COLUMNS, StateScope.REFERRED, owner="members"),
        StateSpec("log", StateKind.ROWS, StateScope.REFERRING, owner="totals", numbers=(Numbers("totals", "slot"),)),
        StateSpec("next", StateKind.TABLE, StateScope.NEXT, owner="arrival"),
        StateSpec(f"pane/{ANY}", StateKind.COLUMNS, StateScope.KEYED, numbers=(Numbers(f"log/{ANY}/v", "last"),)),
        StateSpec(f"log/{ANY}/v", StateKind.ROWS, StateScope.REFERRED, owner=f"pane/{ANY}"),
        StateSpec("sides", StateKind.ROWS, StateScope.KEYED, key_columns=("key", "other")),
        StateSpec(
            "alone", StateKind.COLUMNS, StateScope.REFERRING, owner="sides", numbers=(Numbers("sides", KEY_COLUMN),)
        ),
        StateSpec("cells", StateKind.COLUMNS, StateScope.KEYED, key_columns=1, numbers=(Numbers("arrival", "1"),)),
    )
)

KINDS: list[tuple[tuple[Any, ...], list[tuple[Any, ...]]]] = [
    ((pyarrow.int64(),), [(number * 1009 - 5000,) for number in range(40)] + [(None,)]),
    ((pyarrow.string(),), [(f"é{number}",) for number in range(40)] + [(None,), ("",)]),
    ((pyarrow.timestamp("us", tz="UTC"),), [(datetime(2026, 1, day, tzinfo=UTC),) for day in range(1, 30)]),
    ((pyarrow.date32(),), [(date(2026, 1, day),) for day in range(1, 30)]),
    ((pyarrow.bool_(),), [(True,), (False,), (None,)]),
    (
        (pyarrow.int32(), pyarrow.string()),
        [(number % 5, f"user{number}") for number in range(40)] + [(None, None), (3, None)],
    ),
]
"""Types of the key of records, and such keys."""


class Task:
    """A task whose state changes at random, and what it has for each key. ``owns``: whether a key is one of its own;
    state by other parts of a record has only those."""

    def __init__(
        self,
        kind: int,
        keys: list[tuple[Any, ...]],
        rng: random.Random,
        owns: Callable[[tuple[Any, ...]], bool] = lambda _: True,
    ) -> None:
        self.rng, self.keys, self.owns, types = rng, keys, owns, KINDS[kind][0]
        self.types = types
        self.state = StateBackend(None, column_sizes=ColumnSizes(64, 3, 2, 4))
        self.number = rng.randrange(3)
        self.open()
        self.pieces = []
        for full in (True, False, False):
            for _ in range(rng.randrange(8) if keys else 0):
                self.change()
            if self.number:
                self.state.table("s/next").set(0, self.number)
            self.pieces.append(self.state.changes(full))
            if rng.random() < 0.3:
                self.state = StateBackend(whole(self.pieces), column_sizes=ColumnSizes(64, 3, 2, 4))
                self.open()

    def open(self) -> None:
        """Opens the state of a step."""
        numbers = {"count": numpy.int64, "held": (numpy.int64, HELD), "text": numpy.int64, "number": numpy.int64}
        state = self.state
        self.totals = state.column_table("s/totals", ColumnSpec(self.types, numbers, {"held": -1}))
        whole_number = ColumnSpec((pyarrow.int64(),))
        self.order, self.members = (state.column_table(f"s/{name}", whole_number) for name in ("order", "members"))
        self.shared = state.column_table("s/shared", ColumnSpec((pyarrow.string(),)))
        self.rows, self.texts, self.log, self.sides = map(state.row_store, ("s/rows", "s/texts", "s/log", "s/sides"))
        self.alone = state.column_table("s/alone", ColumnSpec((pyarrow.int64(),), {"last": numpy.int64}))
        self.cells = state.column_table("s/cells", ColumnSpec((self.types[0], pyarrow.int64())))
        pane = ColumnSpec(self.types, {"last": numpy.int64}, {"last": -1})
        self.panes = {number: state.column_table(f"s/pane/{number}", pane) for number in (-7, 3)}
        self.logs = {number: state.row_store(f"s/log/{number}/v") for number in (-7, 3)}

    def change(self) -> None:
        """Records of some keys come, or some keys go."""
        rng = self.rng
        keys = rng.sample(self.keys, min(len(self.keys), rng.randrange(1, 6)))
        if rng.random() < 0.25:
            self.remove(keys)
            return
        columns = self.columns(keys)
        slots = self.totals.slots(columns)
        self.totals.touch(slots)
        values = self.totals.values
        values["count"][slots] += 1
        fresh = numpy.arange(len(slots)) + self.number
        values["number"][slots] = fresh
        self.number += len(slots) + rng.randrange(3)
        place = rng.randrange(HELD)
        self.rows.remove(values["held"][slots, place][values["held"][slots, place] >= 0])
        values["held"][slots, place] = self.rows.append(batch_of(value=[rng.random() for _ in keys]))
        before = values["text"][slots] - 1
        self.texts.remove(before[before >= 0])
        values["text"][slots] = self.texts.append(batch_of(value=[f"text {rng.random()}" for _ in keys])) + 1
        self.order.slots(slots.astype(numpy.int64))
        words = self.shared.slots([pyarrow.array([f"word{rng.randrange(6)}" for _ in keys])]).astype(numpy.int64)
        self.members.slots(slots.astype(numpy.int64) << 32 | words | TABLED)
        self.members.slots(slots.astype(numpy.int64) << 32 | rng.randrange(5))
        entries = [pyarrow.array(slots, pyarrow.int32()), pyarrow.array([rng.random() for _ in keys])]
        self.log.append(pyarrow.RecordBatch.from_arrays(entries, ["slot", "value"]))
        cells = [place for place, key in enumerate(keys) if self.owns(key[:1])]
        self.cells.slots([columns[0].take(pyarrow.array(cells, pyarrow.int64())), pyarrow.array(fresh[cells])])
        if own := [key for key in keys if self.owns((key[0], key[-1]))]:
            of_own = self.columns(own)
            sides = self.sides.append(batch_of(key=of_own[0], other=of_own[-1], value=[rng.random() for _ in own]))
            alone = self.alone.slots(sides[::2])
            self.alone.values["last"][alone] = rng.randrange(100)
        number = rng.choice([-7, 3])
        self.logs[number].replace(self.panes[number], "last", self.panes[number].slots(columns), batch_of(v=fresh))

    def remove(self, keys: list[tuple[Any, ...]]) -> None:
        """Forgets what keys have; those of totals stay, because other state names their slots."""
        columns = self.columns(keys)
        slots = self.totals.find(columns).astype(numpy.int64)
        slots = slots[slots >= 0]
        self.totals.touch(slots)
        held = self.totals.values["held"]
        self.rows.remove(held[slots][held[slots] >= 0])
        held[slots] = -1
        found = self.order.find(slots)
        self.order.remove(found[found >= 0])
        for chunk in self.log.chunks:
            places, numbers = chunk.live_from(0)
            self.log.remove(numbers[numpy.isin(chunk.at(places).column("slot").to_numpy(), slots)])
        for number, pane in self.panes.items():
            ended = pane.find(columns)
            ended = ended[ended >= 0]
            self.logs[number].discard(pane, "last", ended)
            pane.remove(ended)
        self.alone.remove(self.alone.live()[::2])
        self.cells.remove(self.cells.live()[::3])

    def columns(self, keys: list[tuple[Any, ...]]) -> list[Any]:
        """Keys as columns."""
        return [pyarrow.array(column, kind) for column, kind in zip(zip(*keys, strict=True), self.types, strict=True)]


def batch_of(**columns: Any) -> Any:
    """A batch of rows."""
    return pyarrow.RecordBatch.from_pydict(columns)


def read(image: StateImage, kind: int) -> dict[str, list[Any]]:
    """What a task has, with nothing left of slots and rows but their order; the state is used up."""
    types = KINDS[kind][0]
    task = Task(kind, [], random.Random(0))
    task.state = StateBackend(image)
    numbers: list[int] = image.tables.get("s/next", {}).get(0, 0)
    task.open()
    slots = task.totals.live()
    keys = dict(zip(slots.tolist(), pairs(task.totals.keys(slots)), strict=True))
    values = task.totals.values
    members = task.members.keys(task.members.live())[0].to_numpy().tolist()
    log = rows_of(task.log)
    sides = dict(numbered_rows(task.sides))
    live = task.alone.live()
    alone = zip(task.alone.keys(live)[0].to_pylist(), task.alone.values["last"][live].tolist(), strict=True)
    found = {
        "totals": [
            (
                keys[slot],
                int(values["count"][slot]),
                held_by(task.rows, values["held"][slot]),
                held_by(task.texts, values["text"][slot : slot + 1] - 1),
                int(values["number"][slot]),
            )
            for slot in slots.tolist()
        ],
        "order": [keys[slot] for slot in task.order.keys(task.order.live())[0].to_pylist()],
        "members": [(keys[member >> 32], word_of(task, member & 0xFFFFFFFF)) for member in members],
        "log": [(keys[slot], value) for slot, value in log],
        "sides": list(sides.values()),
        "alone": [(sides[number], last) for number, last in alone],
        "cells": pairs(task.cells.keys(task.cells.live())),
        "next": [numbers] if numbers else [],
    }
    assert len(task.shared) == len({word for _, word in found["members"] if type(word) is str})
    assert len(task.rows) == sum(len(held) for _, _, held, _, _ in found["totals"])
    for number, pane in task.panes.items():
        live = pane.live()
        found[f"pane {number}"] = list(
            zip(
                pairs(pane.keys(live)),
                [held_by(task.logs[number], pane.values["last"][slot : slot + 1]) for slot in live.tolist()],
                strict=True,
            )
        )
        assert len(task.logs[number]) == len(live)
    assert task.types == types
    return found


def pairs(columns: list[Any]) -> list[Any]:
    """Rows of columns."""
    return list(zip(*[column.to_pylist() for column in columns], strict=True))


def numbered_rows(store: Any) -> list[Any]:
    """Rows of a store with their numbers."""
    numbers = [int(number) for chunk in store.chunks for number in chunk.live_from(0)[1]]
    return list(zip(numbers, rows_of(store), strict=True))


def rows_of(store: Any) -> list[Any]:
    """Rows of a store in order."""
    return [row for chunk in store.chunks for row in pairs(chunk.at(chunk.live_from(0)[0]).columns)]


def held_by(store: Any, numbers: Any) -> list[Any]:
    """Rows that numbers name."""
    numbers = numbers[numbers >= 0]
    return store.take(numbers).column(0).to_pylist() if len(numbers) else []


def word_of(task: Task, number: int) -> Any:
    """A member of a key: a text or a number."""
    return task.shared.keys(numpy.array([number ^ TABLED]))[0].to_pylist()[0] if number & TABLED else number


def twin_of(tasks: list[dict[str, list[Any]]], width: int, most: int) -> list[dict[str, list[Any]]]:
    """What the new tasks have: entries of the old tasks one after the other, with numbers of their own."""

    def is_own(key: Any, new: int) -> bool:
        return owner_of(key[0] if len(key) == 1 else tuple(key), width, most) == new

    found: list[dict[str, list[Any]]] = [{} for _ in range(width)]
    for new in range(width):
        base = 0
        for task in tasks:
            mine = {
                name: [entry for entry in entries if is_own(entry if name == "order" else entry[0], new)]
                for name, entries in task.items()
                if name not in ("next", "sides", "alone", "cells")
            }
            mine["sides"] = [row for row in task["sides"] if is_own(row[:2], new)]
            mine["alone"] = [entry for entry in task["alone"] if is_own(entry[0][:2], new)]
            mine["cells"] = [cell for cell in task["cells"] if is_own(cell[:1], new)]
            numbers = {entry[4] for entry in mine["totals"]} | {number for _, number in mine["cells"]}
            ranks = {number: base + rank for rank, number in enumerate(sorted(numbers))}
            base += len(ranks)
            mine["totals"] = [(*entry[:4], ranks[entry[4]]) for entry in mine["totals"]]
            mine["cells"] = [(key, ranks[number]) for key, number in mine["cells"]]
            for name, entries in mine.items():
                found[new].setdefault(name, []).extend(entries)
        found[new]["next"] = [base] if base else []
    return found


widths = st.integers(1, 4)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, len(KINDS) - 1), widths, widths, widths, st.sampled_from([4, 8, 128]), st.integers(0, 1 << 32))
def test_columns_and_rows_are_divided_and_merged_as_the_twin_does_it(
    kind: int, old: int, new: int, last: int, most: int, seed: int
) -> None:
    rng = random.Random(seed)

    def owner(key: tuple[Any, ...]) -> int:
        return owner_of(key[0] if len(key) == 1 else key, old, most)

    keys: list[list[Any]] = [[] for _ in range(old)]
    for key in KINDS[kind][1]:
        keys[owner(key)].append(key)
    tasks = [
        Task(kind, theirs, rng, lambda key, index=index: owner(key) == index)  # type: ignore[misc]
        for index, theirs in enumerate(keys)
    ]
    pieces = [task.pieces for task in tasks]
    twins = [read(whole(each), kind) for each in pieces]
    for width in (new, last):
        twins = twin_of(twins, width, most)
        pieces_again = [[piece_of(image)] for image in divided(DECLARED, pieces, width, most)]
        pieces = [[piece_of(image)] for image in divided(DECLARED, pieces, width, most)]
        assert pieces == pieces_again  # equal calls give equal bytes
        assert [read(whole(each), kind) for each in pieces] == twins


def test_columns_with_rows_that_wait_are_refused() -> None:
    declared = DeclaredState([("s", StateSpec("rows", StateKind.ROWS, StateScope.DRAINED))])
    state = StateBackend(None)
    numbers = state.row_store("s/rows").append(batch_of(value=[1, 2]))
    waiting = state.changes(full=True)
    state.row_store("s/rows").remove(numbers)
    assert divided(declared, [[waiting, state.changes(full=False)]], 2, 8)[0].stores == {}
    with pytest.raises(StateUndivided, match="records wait in it"):
        divided(declared, [[waiting]], 2, 8)
