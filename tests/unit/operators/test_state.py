"""The bytes of changes, damaged or whole, and what the image makes of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.keys import encode_key, key_group, key_of, state_key
from clonos.core.values import ValueMalformed, decode_rows
from clonos.operators import state as state_module
from clonos.operators.state import StateBackend, StateImage, StateMalformed

KEYS: list[Any] = ["a", "b", 1, True, False, None, ("a", True), ("a", 1)]

operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("xy"), st.sampled_from(KEYS), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.sampled_from("xy"), st.sampled_from(KEYS), st.none()),
        st.tuples(st.sampled_from(["drop", "snapshot", "restore"]), st.sampled_from("xy"), st.none(), st.none()),
    ),
    max_size=40,
)


def contents(image: StateImage) -> str:
    return repr({name: list(entries.items()) for name, entries in sorted(image.tables.items()) if entries})


@settings(deadline=None)
@given(operations)
def test_an_image_has_what_the_plain_dicts_have_in_their_order(operations: list[Any]) -> None:
    twin: dict[str, dict[Any, Any]] = {}
    backend, image = StateBackend(None, 128), StateImage()
    image.apply(backend.changes(True))
    for action, table, key, value in operations:
        entries = twin.setdefault(table, {})
        if action == "set":
            entries[state_key(key)] = value
            backend.table(table).set(state_key(key), value)
        elif action == "delete":
            entries.pop(state_key(key), None)
            backend.table(table).delete(state_key(key))
        elif action == "drop":
            entries.clear()
            backend.table(table)
            backend.drop(table)
        else:
            image.apply(backend.changes(False))
            assert contents(image) == repr({name: list(twin[name].items()) for name in sorted(twin) if twin[name]})
        if action == "restore":
            taken, image = image, StateImage()
            backend = StateBackend(taken, 128)
            image.apply(backend.changes(True))


def test_each_entry_bears_its_key_group() -> None:
    backend = StateBackend(None, 16)
    for key in KEYS:
        backend.table("step/state").set(state_key(key), "value")
    changes = msgspec.msgpack.decode(backend.changes(True))
    (_, deleted, keys, groups, _), *others = changes[3]
    assert not others
    assert decode_rows(deleted) == []
    assert [key_of(state_key(key)) for key in decode_rows(keys)] == KEYS
    assert decode_rows(groups) == [key_group(encode_key(key), 16) for key in KEYS]


def test_a_large_table_goes_in_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SECTION_ENTRIES_MAX", 3)
    backend = StateBackend(None, 16)
    for number in range(10):
        backend.table("step/state").set(number, number)
    changes = backend.changes(False)
    image = StateImage()
    image.apply(changes)
    assert image.tables == {"step/state": {number: number for number in range(10)}}
    assert len(msgspec.msgpack.decode(changes)[3]) == 4


def test_the_same_calls_give_the_same_bytes() -> None:
    def changes() -> bytes:
        backend = StateBackend(None, 16)
        for name in ("b", "a"):
            backend.table(name).set("key", {"set": {3, 1, 2}})
        return backend.changes(False)

    assert changes() == changes()


def test_damaged_changes_are_refused_by_what_is_wrong() -> None:
    backend = StateBackend(None, 16)
    backend.table("a").set("key", 1)
    changes = backend.changes(True)
    with pytest.raises(StateMalformed):
        StateImage().apply(changes[:-9])
    with pytest.raises(StateMalformed, match="format 9 is newer than 1"):
        StateImage().apply(msgspec.msgpack.encode([9, True, [], []]))
    with pytest.raises(ValueMalformed):
        StateImage().apply(msgspec.msgpack.encode([1, True, [], [["a", b"\x01", b"\x01", b"\x01", b"\x01"]]]))
