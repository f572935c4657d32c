"""State in columns through barriers, incremental chains, whole snapshots, restores, and reads beside the step."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from threading import Thread
from typing import Any

import msgspec
import numpy
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.operators.state.column_table import ColumnSpec, ColumnTable
from clonos.operators.state.keyed_state import StateBackend
from clonos.operators.state.state_errors import StateMalformed
from tests.harnesses.both_kernels import kernels
from tests.unit.column_state.column_twins import KEY_TYPES, NAME, ROWS_NAME, SMALL, ColumnHarness, contents_of, image_of

__all__ = ["kernels"]

numbers = st.lists(st.integers(0, 12), min_size=1, max_size=8)
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("update"), numbers, st.integers(0, 9)),
        st.tuples(st.just("update"), numbers, st.integers(0, 9)),
        st.tuples(st.just("remove"), numbers, st.none()),
        st.tuples(st.just("expire"), st.none(), st.integers(1, 4)),
        st.tuples(
            st.sampled_from(["barrier", "barrier", "whole", "restore", "read one", "read one", "read all", "step"]),
            st.none(),
            st.none(),
        ),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(st.sampled_from(sorted(KEY_TYPES)), st.sampled_from([0, 500, 1 << 20]), deeds)
def test_state_in_columns_is_what_dicts_hold(kind: str, inline_bytes_max: int, deeds: list[Any]) -> None:
    life = ColumnHarness(kind, inline_bytes_max)
    for deed, numbers, amount in deeds:
        if deed == "update":
            life.update(numbers, amount)
        elif deed == "remove":
            life.remove(numbers)
        elif deed == "expire":
            life.expire(amount)
        elif deed == "step":
            life.backend.merge_overlay()
        else:
            getattr(life, deed.replace(" ", "_"))()
        life.check()
    life.read_all()
    life.restore()
    life.check()


@settings(deadline=None)
@given(st.sampled_from(sorted(KEY_TYPES)), deeds, st.integers(0, 3), st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_replay_continues_the_chain_of_the_task_that_it_repeats(
    kind: str, deeds: list[Any], begins: int, turns: list[bool]
) -> None:
    """A shadow begins at a barrier and repeats the calls. From any later barrier on, the chain may be its."""
    task = ColumnHarness(kind, 1 << 20)
    shadow: ColumnHarness | None = None
    stored: list[bytes] = [task.backend.changes(True)]
    barriers = 0
    for deed, numbers, amount in deeds:
        lives = [task] if shadow is None else [task, shadow]
        if deed in ("update", "remove", "expire"):
            for life in lives:
                if deed == "update":
                    life.update(numbers, amount)
                elif deed == "remove":
                    life.remove(numbers)
                else:
                    life.expire(amount)
        elif deed in ("barrier", "whole", "restore"):
            taken = [life.backend.changes(False) for life in lives]
            stored.append(taken[-1] if turns[barriers % len(turns)] else taken[0])
            assert contents_of(image_of(stored), kind) == task.twin.contents(kind)
            if barriers == begins:
                shadow = ColumnHarness(kind, 1 << 20, image_of(stored), task.twin)
            barriers += 1


COUNTS = ColumnSpec((pyarrow.int64(),), {"n": numpy.int64, "total": numpy.float64})


def counting(keys: int, inline_bytes_max: int = 0) -> tuple[StateBackend, ColumnTable]:
    backend = StateBackend(None, inline_bytes_max)
    table = backend.column_table(NAME, COUNTS)
    slots = table.slots(numpy.arange(keys))
    table.values["n"][slots] = slots
    return backend, table


def test_a_reader_in_another_thread_has_the_values_at_the_barrier() -> None:
    backend, table = counting(200_000)
    changes, more = backend.take(False)
    whole = backend.whole()
    assert more is not None
    assert whole is not None
    read: dict[str, list[bytes]] = {}
    threads = [
        Thread(target=lambda name=name, pieces=pieces: read.update({name: list(pieces)}))
        for name, pieces in (("more", more), ("whole", whole))
    ]
    for thread in threads:
        thread.start()
    rounds = 0
    while any(thread.is_alive() for thread in threads) or not rounds:
        slots = (numpy.arange(20_000) * 10 + rounds) % len(table)
        table.touch(slots)
        table.values["n"][slots] += 1_000_000
        table.slots(numpy.arange(200_000 + rounds, 200_100 + rounds))
        table.remove(slots[:10])
        rounds += 1
    for thread in threads:
        thread.join()
    for image in (image_of([changes, *read["more"]]), image_of(read["whole"])):
        found = image.columns[NAME]
        assert found.count == 200_000
        assert found.removed_count == 0
        assert (found.columns["n"][:200_000] == numpy.arange(200_000)).all()


def test_equal_calls_give_equal_bytes() -> None:
    deeds = ["update", "update", "barrier", "update", "remove", "barrier", "expire", "update", "whole", "barrier"]
    taken = []
    for _ in range(2):
        life = ColumnHarness("pair")
        pieces: list[bytes] = []
        for number, deed in enumerate(deeds * 3):
            keys = [(number * 7 + each) % 13 for each in range(6)]
            if deed == "update":
                life.update(keys, number % 9)
            elif deed == "remove":
                life.remove(keys[:3])
            elif deed == "expire":
                life.expire(2)
            else:
                changes, more = life.backend.take(False)
                whole = life.backend.whole() if deed == "whole" else None
                pieces += [changes, *(more or ()), *(whole or ())]
        taken.append(pieces)
    assert taken[0] == taken[1]
    assert len(taken[0]) > 30


def test_a_chain_adds_up_to_the_bytes_of_a_full_table() -> None:
    life = ColumnHarness("int")
    for number in range(12):
        life.update([number, number // 2, 3], number % 9)
        life.remove([number - 4])
        life.barrier()
    life.read_all()
    pieces = [backend.changes(True) for backend in (StateBackend(life.image, 0, SMALL), life.backend)]
    added, expected = ([part for part in msgspec.msgpack.decode(piece)[4] if part[0] == NAME] for piece in pieces)
    assert added == expected


def test_a_barrier_copies_nothing_of_a_large_table() -> None:
    backend, table = counting(300_000)
    backend.changes(False)
    slots = numpy.arange(0, 300_000, 3)
    table.touch(slots)
    table.values["n"][slots] += 1
    tracemalloc.start()
    try:
        _, more = backend.take(False)
        whole = backend.whole()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert more is not None
    assert whole is not None
    assert peak_bytes < 700_000, "of 7.2 MB; a byte a slot marks changes"
    assert sum(map(len, more)) < 100_000 * 21


def test_a_restore_makes_no_object_per_key() -> None:
    pieces = [counting(300_000)[0].changes(True)]
    image_of(pieces)  # imports
    before = sys.getallocatedblocks()
    backend = StateBackend(image_of(pieces))
    table = backend.column_table(NAME, COUNTS)
    assert sys.getallocatedblocks() - before < 1000
    assert table.find(numpy.array([0, 299_999, 300_000])).tolist() == [0, 299_999, -1]


def test_a_table_that_a_step_opens_late_has_its_keys_and_is_part_of_snapshots_before() -> None:
    image = image_of([counting(100)[0].changes(True)])
    backend = StateBackend(image)
    whole = backend.whole()
    assert whole is not None
    assert image_of(whole).columns[NAME].count == 100
    whole.release()
    backend.merge_overlay()
    assert backend.restored_columns("step/") == []
    table = backend.column_table(NAME, COUNTS)
    assert table.slots(numpy.array([99, 100])).tolist() == [99, 100]


def test_small_changes_are_encoded_by_the_barrier_and_large_ones_afterwards() -> None:
    backend, table = counting(100_000, inline_bytes_max=50_000)
    changes, more = backend.take(False)
    assert more is not None
    image = image_of([changes])
    assert NAME not in image.columns
    assert image_of(more, image).columns[NAME].count == 100_000
    table.touch(numpy.arange(1000))
    changes, more = backend.take(False)
    assert more is None
    assert image_of([changes], image).columns[NAME].count == 100_000


def test_old_values_are_held_only_while_a_reader_needs_them() -> None:
    backend, table = counting(1000)
    _, more = backend.take(False)
    assert more is not None
    slots = numpy.arange(10)
    table.touch(slots)
    table.touch(slots)
    assert table.old_values == 10, "the first change of a slot counts"
    more.release()
    backend.merge_overlay()
    assert not table.old_values


def test_a_released_reader_holds_no_old_values_while_another_one_reads() -> None:
    backend, table = counting(1000)
    _, first = backend.take(False)
    table.touch(numpy.arange(10))
    _, second = backend.take(False)
    assert first is not None
    assert second is not None
    first.release()
    backend.merge_overlay()
    retained = [table.old_values]
    table.touch(numpy.arange(5))
    assert [*retained, table.old_values] == [0, 5]


def damaged(piece: bytes, change: Callable[[list[Any]], None], part: str) -> bytes:
    decoded = msgspec.msgpack.decode(piece)
    change(next(section for section in decoded[4] if section[1] == part))
    return msgspec.msgpack.encode(decoded)


def set_item(index: int, value: Any) -> Callable[[list[Any]], None]:
    return lambda section: section.__setitem__(index, value)


def set_data(index: int, value: bytes) -> Callable[[list[Any]], None]:
    return lambda section: section[4].__setitem__(index, value)


DAMAGE = [
    ("add", set_item(2, 1), "0 slots in place of 1"),
    ("add", set_item(3, 2), "bytes of 2 values"),
    ("add", set_item(3, 1 << 40), "1099511627776 slots are added"),
    ("add", set_item(6, 3), "the null key is outside"),
    ("add", set_item(5, [["int64"], []]), "3 arrays"),
    ("add", set_item(5, None), "no types"),
    ("add", set_item(5, [["int64"], [["n", "<i8"], ["total", "O8"]]]), "cannot be of the type"),
    ("add", set_item(5, [["string"], [["n", "<i8"], ["total", "<f8"]]]), "batch of columns"),
    ("add", set_data(0, b"1"), "1 bytes of 3 values"),
    ("set", set_data(0, b"\0\0\0\0\3\0\0\0"), "a slot is outside"),
    ("set", set_data(0, b"\1\0\0\0\0\0\0\0"), "not in order"),
    ("set", set_data(1, b""), "0 bytes of 2 values"),
    ("remove", set_data(0, b"\0\0\0\0"), "removed twice"),
    ("remove", set_item(3, 5), "the number of slots changes"),
    ("rows", set_item(2, 1), "row 0 in place of 1"),
    ("rows", set_data(0, b"\0" * 16), "not in order"),
    ("rows", set_data(1, b"\0" * 16), "batch of columns"),
    ("remove rows", set_data(0, b"\7" + b"\0" * 7), "was removed"),
]


@pytest.mark.parametrize(("part", "change", "reason"), DAMAGE)
def test_a_damaged_section_is_refused(part: str, change: Callable[[list[Any]], None], reason: str) -> None:
    backend = StateBackend(None)
    table, store = backend.column_table(NAME, COUNTS), backend.row_store(ROWS_NAME)
    slots = table.slots(numpy.arange(3))
    store.append(pyarrow.record_batch({"a": [1, 2]}))
    pieces = [backend.changes(True)]
    table.touch(slots[:2])
    table.remove(slots[:1])
    table.slots(numpy.array([5]))
    table.touch(slots[1:])
    store.remove(numpy.array([0]))
    pieces.append(backend.changes(False))
    table.remove(slots[1:2])
    pieces.append(backend.changes(False))
    image_of(pieces)
    number = 0 if part in ("add", "rows") else 2 if part == "remove" else 1
    pieces[number] = damaged(pieces[number], change, part)
    with pytest.raises(StateMalformed, match=reason):
        image_of(pieces)


def test_a_key_with_two_slots_is_refused_when_a_step_looks_for_keys() -> None:
    backend = StateBackend(None)
    backend.column_table(NAME, COUNTS).slots(numpy.arange(2))
    image = image_of([damaged(backend.changes(True), set_data(0, bytes(16)), "add")])
    table = StateBackend(image).column_table(NAME, COUNTS)
    with pytest.raises(StateMalformed, match="2 slots have 1 keys"):
        table.find(numpy.arange(2))


def test_a_restored_table_has_no_index_until_a_step_looks_for_keys() -> None:
    backend = StateBackend(None)
    backend.column_table(NAME, COUNTS).slots(numpy.arange(1_000))
    table = StateBackend(image_of([backend.changes(True)])).column_table(NAME, COUNTS)
    without = table.size_bytes
    assert table.keys(numpy.arange(2))[0].to_pylist() == [0, 1]
    assert table.live().tolist() == list(range(1_000))
    assert table.size_bytes == without
    assert table.find(numpy.array([999, 1_000])).tolist() == [999, -1]
    assert table.size_bytes > without + 8_000


def test_ints_near_each_other_are_stored_in_few_bytes_and_restored_with_changes() -> None:
    spec = ColumnSpec((pyarrow.int64(),), {"row": numpy.int64, "total": numpy.float64})
    backend = StateBackend(None)
    table = backend.column_table(NAME, spec)
    keys = (1 << 40) + numpy.arange(10_000)
    slots = table.slots(keys)
    table.values["row"][slots] = -numpy.arange(10_000) * 3
    pieces = [backend.changes(True)]
    assert len(pieces[0]) < 10_000 * (2 + 2 + 8) + 1_000  # keys and rows in 2 bytes each
    table.touch(slots[::7])
    table.values["row"][slots[::7]] = numpy.int64(-(1 << 62)) + slots[::7]
    pieces.append(backend.changes(False))
    restored = StateBackend(image_of(pieces)).column_table(NAME, spec)
    assert restored.find(keys).tolist() == slots.tolist()
    assert (restored.values["row"][: len(restored)] == table.values["row"][: len(table)]).all()
    assert (restored.values["total"][: len(restored)] == 0).all()
