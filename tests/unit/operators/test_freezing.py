"""Frozen state: encoded while the task continues, with the content that it had at the barrier."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.values.keys import state_key
from clonos.operators.state.frozen_entries import FrozenPieces, Overlay
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_errors import StateUnsupported

KEYS: list[Any] = ["a", "b", 1, True, ("a", True)]

deeds = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("xy"), st.sampled_from(KEYS), st.integers(0, 5)),
        st.tuples(st.just("append"), st.sampled_from("xy"), st.sampled_from(KEYS), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.sampled_from("xy"), st.sampled_from(KEYS), st.none()),
        st.tuples(st.sampled_from(["drop", "take"]), st.sampled_from("xy"), st.none(), st.none()),
        st.tuples(st.sampled_from(["whole", "read", "step"]), st.none(), st.none(), st.integers(0, 1)),
    ),
    max_size=60,
)

Twin = dict[str, dict[Any, Any]]


def contents(tables: Twin) -> str:
    return repr({name: list(entries.items()) for name, entries in sorted(tables.items()) if entries})


def image_of(*pieces: bytes, base: StateImage | None = None) -> StateImage:
    image = base or StateImage()
    for piece in pieces:
        image.apply(piece)
    return image


class StateHarness:
    """A backend, dicts that do the same, and what is read of it behind its back."""

    def __init__(self) -> None:
        self.backend = StateBackend(None, inline_bytes_max=0)
        self.twin: Twin = {}
        self.image = image_of(self.backend.changes(True))
        self.unread: list[tuple[FrozenPieces, str, StateImage | None]] = []

    def set(self, table: str, key: Any, value: Any) -> None:
        self.twin.setdefault(table, {})[key] = value
        self.backend.table(table).set(key, value)

    def append(self, table: str, key: Any, value: Any) -> None:
        self.twin.setdefault(table, {}).setdefault(key, []).append(value)
        found = self.backend.table(table)
        values = found.entries.get(key, [])
        values.append(value)  # in place
        found.set(key, values)

    def delete(self, table: str, key: Any) -> None:
        self.twin.setdefault(table, {}).pop(key, None)
        self.backend.table(table).delete(key)

    def drop(self, table: str) -> None:
        assert self.backend.table(table).contents() == self.twin.pop(table, {})
        self.backend.drop(table)

    def take(self) -> None:
        """A barrier: the changes add up to what was there."""
        expected = contents(self.twin)
        changes, more = self.backend.take(False)
        self.image.apply(changes)
        if more is None:
            assert contents(self.image.tables) == expected
        else:
            self.read(0)
            self.unread.append((more, expected, self.image))

    def whole(self) -> None:
        self.take()
        whole = self.backend.whole()
        if whole is not None:
            self.unread.append((whole, contents(self.twin), None))

    def read(self, which: int) -> None:
        """Encodes all unread pieces and compares them with the twin."""
        for pieces, expected, base in self.unread:
            assert contents(image_of(*pieces, base=base).tables) == expected
            pieces.release()
        self.unread.clear()


@settings(deadline=None)
@given(deeds)
def test_pieces_have_the_state_at_the_barrier(deeds: list[Any]) -> None:
    life = StateHarness()
    for deed, table, key, value in deeds:
        key = key if key is None else state_key(key)
        if deed == "set":
            life.set(table, key, value)
        elif deed == "append":
            if not isinstance(life.twin.get(table, {}).get(key, []), int):
                life.append(table, key, value)
        elif deed == "delete":
            life.delete(table, key)
        elif deed == "drop":
            life.drop(table)
        elif deed == "take":
            life.take()
        elif deed == "whole":
            life.whole()
        elif deed == "read":
            life.read(value)
        else:
            life.backend.merge_overlay(1)
    life.read(0)
    life.take()
    life.read(0)
    assert contents(life.image.tables) == contents(life.twin)
    life.backend.merge_overlay()
    assert contents({name: life.backend.table(name).contents() for name in life.twin}) == contents(life.twin)


def test_a_frozen_table_is_not_encoded_at_the_barrier_and_thaws_when_it_is_stored() -> None:
    backend = StateBackend(None, inline_bytes_max=1)
    table = backend.table("step/state")
    table.update(dict.fromkeys(range(1000), "value"))
    frozen = table.entries
    _, more = backend.take(False)
    assert more is not None
    assert isinstance(table.entries, Overlay)
    assert table.entries.frozen is frozen
    table.set(7, "later")
    backend.merge_overlay()
    assert isinstance(table.entries, Overlay)
    more.release()
    backend.merge_overlay()
    assert table.entries is frozen
    assert frozen[7] == "later"


def test_a_barrier_encodes_state_up_to_its_limit() -> None:
    backend = StateBackend(None, inline_bytes_max=1 << 10)
    backend.table("large").update(dict.fromkeys(range(10_000), "value"))
    changes, more = backend.take(False)
    assert more is not None
    first = image_of(changes)
    assert 0 < len(first.tables["large"]) < 10_000
    assert len(image_of(*more, base=first).tables["large"]) == 10_000


def test_a_small_table_is_never_frozen() -> None:
    backend = StateBackend(None, inline_bytes_max=0)
    table = backend.table("step/open", is_small=True)
    table.update(dict.fromkeys(range(1000), "value"))
    assert backend.take(False)[1] is None
    whole = backend.whole()
    assert whole is not None
    table.set(1, "later")
    assert image_of(*whole).tables == {"step/open": dict.fromkeys(range(1000), "value")}
    assert type(table.entries) is dict


def test_barriers_during_a_read_encode_the_whole_state() -> None:
    backend = StateBackend(None, inline_bytes_max=0)
    table = backend.table("step/state")
    table.update(dict.fromkeys(range(1000), "value"))
    assert backend.take(False)[1] is not None
    table.update(dict.fromkeys(range(1000, 2000), "value"))
    changes, more = backend.take(False)
    assert more is None
    assert backend.whole() is None  # what is frozen is not the state of this barrier
    assert list(image_of(changes).tables["step/state"]) == list(range(1000, 2000))


def test_values_of_a_restored_table_that_no_step_opened_are_part_of_the_full_state() -> None:
    image = StateImage()
    image.tables = {"step/state": {1: "one"}}
    whole = StateBackend(image).whole()
    assert whole is not None
    assert image_of(*whole).tables == {"step/state": {1: "one"}}


def test_pieces_can_be_encoded_again_after_a_store_failure() -> None:
    backend = StateBackend(None, inline_bytes_max=0)
    backend.table("step/state").update(dict.fromkeys(range(1000), "value"))
    _, more = backend.take(False)
    assert more is not None
    assert list(more) == list(more)


def test_a_value_that_cannot_be_encoded_is_found_when_the_pieces_are_encoded() -> None:
    backend = StateBackend(None, inline_bytes_max=0)
    backend.table("step/state").update(dict.fromkeys(range(300), "value"))
    backend.table("step/state").set("bad", object())
    _, more = backend.take(False)
    assert more is not None
    with pytest.raises(StateUnsupported, match="the state step/state cannot be stored"):
        list(more)


def test_a_thawing_table_merges_changes_in_bounded_steps() -> None:
    overlay = Overlay(dict.fromkeys(range(100), 0))
    overlay.update(dict.fromkeys(range(50, 150), 1))
    for key in (0, 60):
        overlay.pop(key)
    overlay[60] = 2
    steps = 1
    while not overlay.merge_overlay(10):
        overlay.update(dict.fromkeys(range(1000 + 20 * steps, 1020 + 20 * steps), 3))
        assert (overlay.get(0), overlay[60], overlay[1], overlay[149]) == (None, 2, 0, 1)
        steps += 1
    assert steps < 20
    assert list(overlay.frozen)[:149] == [*range(1, 60), *range(61, 150), 60]
    assert overlay.frozen[149] == 1
    assert overlay.frozen[60] == 2


def test_a_thawing_table_can_be_frozen_again() -> None:
    backend = StateBackend(None, inline_bytes_max=0)
    table = backend.table("step/state")
    table.update(dict.fromkeys(range(1000), "value"))
    _, more = backend.take(False)
    assert more is not None
    table.update(dict.fromkeys(range(500, 1500), "later"))
    more.release()
    backend.merge_overlay(10)
    table.update(dict.fromkeys(range(1500, 2000), "last"))
    changes, more = backend.take(False)
    assert more is not None
    table.set(1999, "too late")
    assert list(image_of(changes, *more).tables["step/state"].values()) == ["later"] * 1000 + ["last"] * 500


def test_an_overlay_is_read_key_by_key() -> None:
    overlay = Overlay({"a": [1], "b": 2})
    assert (overlay["b"], overlay.get("b"), overlay.get("c"), overlay.get("c", 3)) == (2, 2, None, 3)
    assert "a" in overlay
    assert "c" not in overlay
    with pytest.raises(KeyError):
        overlay["c"]
    with pytest.raises(KeyError):
        overlay.pop("c")
    assert overlay.is_unchanged
    overlay["a"].append(2)
    assert overlay.frozen == {"a": [1], "b": 2}
    assert (overlay.pop("a"), overlay.get("a"), "a" in overlay) == ([1, 2], None, False)
    with pytest.raises(KeyError):
        overlay["a"]
    overlay["a"] = 5
    assert overlay.merged() == {"b": 2, "a": 5}
    assert overlay.merge_overlay(10)
    assert list(overlay.frozen) == ["b", "a"]
    for ask in (overlay.keys, overlay.items, overlay.values):
        with pytest.raises(AssertionError, match="by key only"):
            ask()


@pytest.mark.parametrize("inline_bytes_max", [1 << 20, 2_000])
def test_the_size_of_rows_is_that_of_all_entries_by_those_that_the_barrier_encoded(inline_bytes_max: int) -> None:
    backend = StateBackend(None, inline_bytes_max=inline_bytes_max)
    table = backend.table("step/names")
    table.update({number: f"{number:0100}" for number in range(5_000)})
    assert backend.row_bytes == 0, "before the first snapshot nothing is known"
    changes, more = backend.take(True)
    encoded_bytes = len(changes) + sum(map(len, more or ()))
    assert encoded_bytes > 500_000
    assert 0.9 < backend.row_bytes / encoded_bytes < 1.1
    for number in range(4_000):
        table.delete(number)
    if more is not None:
        more.release()
    backend.take(False)
    assert 0.15 < backend.row_bytes / encoded_bytes < 0.25
