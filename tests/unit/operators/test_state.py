"""Bytes of state changes, whole or damaged, and the image that results."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.values import ValueMalformed, column_of
from clonos.core.values.keys import state_key
from clonos.core.wire.decoding import FormatUnknown
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_changes import Section, encode_piece, encode_sections
from clonos.operators.state.state_errors import StateMalformed
from tests.unit.values.samples import Color, Level

INSTANT = datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
KEYS: list[Any] = ["a", "b", 1, True, False, None, ("a", True), ("a", 1), INSTANT, ("a", INSTANT), Level.LOW, Color.RED]


def deep_key(depth: int) -> Any:
    """Tuples within each other, more than a key may have."""
    return (deep_key(depth - 1),) if depth else ()


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
def test_a_state_image_has_the_content_and_order_of_plain_dicts(operations: list[Any]) -> None:
    twin: dict[str, dict[Any, Any]] = {}
    backend, image = StateBackend(None), StateImage()
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
            backend = StateBackend(taken)
            image.apply(backend.changes(True))


def test_a_large_table_is_encoded_in_sections() -> None:
    backend = StateBackend(None)
    for number in range(1000):
        backend.table("step/state").set(number, number)
    changes = backend.changes(False)
    image = StateImage()
    image.apply(changes)
    assert image.tables == {"step/state": {number: number for number in range(1000)}}
    assert len(msgspec.msgpack.decode(changes)[3]) == 2


def test_the_same_calls_give_the_same_bytes() -> None:
    def changes() -> bytes:
        backend = StateBackend(None)
        for name in ("b", "a"):
            backend.table(name).set("key", {"set": {3, 1, 2}})
        return backend.changes(False)

    assert changes() == changes()


def test_damaged_changes_are_refused_with_the_reason() -> None:
    backend = StateBackend(None)
    backend.table("a").set("key", 1)
    changes = backend.changes(True)
    with pytest.raises(StateMalformed):
        StateImage().apply(changes[:-9])
    with pytest.raises(FormatUnknown, match="format 9, and this version of clonos reads format 3"):
        StateImage().apply(msgspec.msgpack.encode([9, True, [], [], []]))
    with pytest.raises(ValueMalformed):
        StateImage().apply(msgspec.msgpack.encode([3, True, [], [["a", [0], [0], [99, [], b"\x01"]]], []]))


@pytest.mark.parametrize(
    ("deleted", "keys", "values"),
    [
        ([], [1, 2], ["one"]),
        ([], [1.5], ["a float is no key"]),
        ([[1]], [], []),
        ([], [({},)], [1]),
        ([], [deep_key(30)], [1]),
    ],
)
def test_malformed_sections_are_refused_and_change_no_state(
    deleted: list[Any], keys: list[Any], values: list[Any]
) -> None:
    good = next(encode_sections("a", {"key": 1}))
    section = Section("a", column_of(deleted), column_of(keys), column_of(values))
    image = StateImage()
    with pytest.raises(StateMalformed, match=r"cannot be read: a: "):
        image.apply(encode_piece((good, section), is_full=True))
    assert image.tables == {}


def test_a_table_with_entries_is_filled_while_its_snapshot_is_read() -> None:
    backend = StateBackend(None, inline_bytes_max=0)
    table = backend.table("step/waiting")
    backend.table("step/empty")
    names = ["step/waiting", "step/empty", "step/unknown"]
    assert backend.filled(names) == ()
    table.update(dict.fromkeys(range(10000), "row"))
    assert backend.filled(names) == ("step/waiting",)
    _, more = backend.take(full=True)
    assert more is not None
    assert backend.filled(names) == ("step/waiting",)
    for number in range(10_000):
        table.delete(number)
    assert backend.filled(names) == ()
    table.set(3, "row")
    assert backend.filled(names) == ("step/waiting",)
