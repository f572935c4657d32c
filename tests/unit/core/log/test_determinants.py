"""Conformance A 1: the entries of a causal log as bytes."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.log import determinants as d
from clonos.core.log.asked import ASKED_BYTES
from clonos.core.model.errors import LogMalformed

INPUTS_MAX: Final = 40_000

numbers = st.integers(0, (1 << 64) - 1)
indexes = st.integers(0, INPUTS_MAX)
counts = st.integers(1, 1 << 40)
blobs = st.binary(max_size=300)

requests = st.integers(0, (1 << 8 * ASKED_BYTES) - 1)
entries: st.SearchStrategy[tuple[bytes, d.Entry]] = st.one_of(
    st.builds(lambda i, n: (d.step(i, n), (d.STEP, i, n, b"")), indexes, counts),
    st.builds(lambda s, n: (d.numbers(d.READ, s, n), (d.READ, s, n, b"")), numbers, counts),
    st.builds(
        lambda tag, n: (d.numbers(tag, n), (tag, n, 0, b"")),
        st.sampled_from((d.CLOCK, d.TIMER, d.TRIGGER, d.LAST_TRIGGER)),
        numbers,
    ),
    st.builds(lambda tag: (d.numbers(tag), (tag, 0, 0, b"")), st.sampled_from((d.END, d.DRAIN, d.HELD))),
    st.builds(lambda bits: (d.seed(bits), (d.SEED, 0, 0, bits)), st.binary(min_size=16, max_size=16)),
    st.builds(
        lambda tag, data: (d.blob(tag, data), (tag, 0, 0, data)),
        st.sampled_from((d.INTENT, d.ROUTED, d.SPLITS)),
        blobs,
    ),
    st.builds(lambda asked, data: (d.call(asked, data), (d.CALL, 0, asked, data)), requests, blobs),
    st.builds(
        lambda n, asked, data: (d.completion(n, asked, data), (d.COMPLETION, n, asked, data)), numbers, requests, blobs
    ),
    st.builds(lambda n, asked, data: (d.part(n, asked, data), (d.PART, n, asked, data)), numbers, requests, blobs),
)


def read_all(log: bytes) -> list[d.Entry]:
    reader = d.LogReader(log)
    found = []
    while not reader.at_end:
        found.append(reader.next())
    return found


@settings(deadline=None)
@given(st.lists(entries, max_size=30))
def test_a1_every_entry_reads_back_as_it_was_written(written: list[tuple[bytes, d.Entry]]) -> None:
    assert read_all(b"".join(data for data, _ in written)) == [entry for _, entry in written]


def test_a1_a_completion_reads_back_with_its_id_and_outcome() -> None:
    data = bytes((d.COMPLETION,)) + d.varint(300) + b"\0\0\0\0\1\2" + d.varint(3) + b"abc"
    assert read_all(data + d.numbers(d.END)) == [(d.COMPLETION, 300, 258, b"abc"), (d.END, 0, 0, b"")]


def test_every_determinant_that_is_read_has_a_name() -> None:
    assert set(d.NAMES) == {d.READ, d.END, d.CLOCK, d.SEED, d.INTENT, d.CALL, d.TIMER, d.TRIGGER} | {
        d.COMPLETION,
        d.ROUTED,
        d.SPLITS,
        d.LAST_TRIGGER,
        d.DRAIN,
        d.PART,
        d.HELD,
        d.STEP,
    }


@settings(deadline=None)
@given(entries)
def test_a1_an_entry_cut_short_anywhere_is_malformed(written: tuple[bytes, d.Entry]) -> None:
    data, _ = written
    for end in range(1, len(data)):
        with pytest.raises(LogMalformed):
            read_all(data[:end])


@pytest.mark.parametrize("tag", [0, 16, 100, 127])
def test_a1_an_unknown_tag_is_malformed_and_named_with_its_place(tag: int) -> None:
    reader = d.LogReader(d.numbers(d.END) + bytes((tag,)) + bytes(20), base_bytes=1000)
    reader.next()
    with pytest.raises(LogMalformed, match=f"byte 1001: tag {tag} is unknown"):
        reader.next()


def test_a1_a_number_beyond_ten_bytes_is_malformed() -> None:
    assert read_all(bytes((d.CLOCK,)) + d.varint((1 << 70) - 1)) == [(d.CLOCK, (1 << 70) - 1, 0, b"")]
    with pytest.raises(LogMalformed, match="more than ten bytes"):
        read_all(bytes((d.CLOCK,)) + d.varint(1 << 70))
    with pytest.raises(LogMalformed, match="more than ten bytes"):
        read_all(bytes((d.CLOCK,)) + b"\xff" * 100)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_a1_arbitrary_bytes_decode_or_are_malformed(data: bytes) -> None:
    try:
        found = read_all(data)
    except LogMalformed:
        return
    assert len(found) <= len(data)


def test_reading_past_the_end_is_malformed() -> None:
    with pytest.raises(LogMalformed, match="no further entry"):
        d.LogReader(b"").next()


def test_peeking_changes_nothing_and_offsets_are_absolute() -> None:
    log = d.step(0, 1000) + d.numbers(d.CLOCK, 5)
    reader = d.LogReader(log, base_bytes=70)
    assert (reader.peek(), reader.peek(), reader.offset_bytes) == (reader.peek(), (d.STEP, 0, 1000, b""), 70)
    reader.next()
    assert reader.offset_bytes == 70 + len(d.step(0, 1000))
    reader.next()
    assert reader.at_end


def test_a_step_of_a_thousand_records_costs_three_bytes() -> None:
    assert len(d.step(0, 1000)) == 3


@pytest.mark.parametrize("index", [0, 126, 127, 128, 32_767, 32_768])
def test_a6_a_step_names_any_input(index: int) -> None:
    assert read_all(d.step(index, 7)) == [(d.STEP, index, 7, b"")]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2_000)), max_size=40))
def test_received_positions_are_the_sums_of_the_steps_of_each_input(steps: list[tuple[int, int]]) -> None:
    log = b"".join(d.step(index, count) + d.numbers(d.CLOCK, count) for index, count in steps)
    assert d.elements_covered(log, 4) == [sum(n for i, n in steps if i == index) for index in range(4)]


def test_a_step_of_an_unknown_input_is_malformed() -> None:
    with pytest.raises(LogMalformed, match="input 4"):
        d.elements_covered(d.step(4, 1), 4)
