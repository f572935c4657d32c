"""Output of a task on one edge: rows and their timestamps go to the same receivers, in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, TaskId
from clonos.core.model.plan import Channel, Edge, Partitioning
from clonos.core.ports.operator_chain import StepFailed
from clonos.core.task.task_output import OutputPort
from clonos.core.values import TimedRows
from clonos.core.values.elements import decode_elements

WIDTH = 3
INSIDE = [Partitioning.FORWARD, Partitioning.HASH, Partitioning.REBALANCE, Partitioning.BROADCAST]


def port_of(partitioning: Partitioning, width: int = WIDTH) -> OutputPort:
    edge = Edge(0, 1, partitioning, 0, "split")
    channels = [Channel(ChannelId(number), 0, TaskId(0), TaskId(1 + number)) for number in range(width)]
    return OutputPort(edge, channels, [0] * width, 128)


def received(port: OutputPort) -> dict[ChannelId, list[Any]]:
    """What each receiver gets: rows, or (row, timestamp)."""
    found: dict[ChannelId, list[Any]] = {}
    for output in port.drain():
        batch = decode_elements(output.kind, output.payload)
        records = list(zip(*batch, strict=True)) if isinstance(batch, TimedRows) else batch
        assert len(records) == output.count
        found.setdefault(output.channel, []).extend(records)
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(INSIDE),
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(-9, 1 << 62)), min_size=1, max_size=6), max_size=5
    ),
)
def test_rows_and_timestamps_are_partitioned_like_pairs_of_them(
    partitioning: Partitioning, batches: Sequence[list[tuple[str, int]]]
) -> None:
    width = 1 if partitioning is Partitioning.FORWARD else WIDTH
    apart, paired = port_of(partitioning, width), port_of(partitioning, width)
    for batch in batches:
        keys = [row for row, _ in batch]
        apart.rows(keys, keys, [time for _, time in batch])
        paired.rows(list(batch), keys)
    assert received(apart) == received(paired)
    assert apart.next_seqs == paired.next_seqs


@pytest.mark.parametrize("partitioning", INSIDE[1:])
def test_rows_without_timestamps_between_others_stay_without_and_in_order(partitioning: Partitioning) -> None:
    port = port_of(partitioning)
    for number in range(12):
        times = None if number % 3 == 1 else [number * 10]
        port.rows([number], [0], times)
    found = received(port)
    given_rows = [number if number % 3 == 1 else (number, number * 10) for number in range(12)]
    if partitioning is Partitioning.REBALANCE:
        assert found == {ChannelId(target): given_rows[target::WIDTH] for target in range(WIDTH)}
    else:
        assert all(rows == given_rows for rows in found.values())
        assert len(found) == (WIDTH if partitioning is Partitioning.BROADCAST else 1)


def test_lists_that_were_passed_do_not_change() -> None:
    port = port_of(Partitioning.FORWARD, 1)
    rows, times = ["a"], [1]
    port.rows(rows, None, times)
    port.rows(["b"], None, [2])
    assert (rows, times) == (["a"], [1])


def test_a_row_with_a_timestamp_that_cannot_be_encoded_is_named_alone() -> None:
    port = port_of(Partitioning.FORWARD, 1)
    port.rows(["a", ("b", object)], None, [1, 2])
    with pytest.raises(StepFailed) as caught:
        port.drain()
    assert caught.value.at.step == "split"
    assert caught.value.at.record == "('b', <class 'object'>)"


def test_rows_with_timestamps_are_elements_of_the_kind_of_rows() -> None:
    port = port_of(Partitioning.FORWARD, 1)
    port.rows(["a"], None, [1])
    assert [output.kind for output in port.drain()] == [ElementKind.ROWS]


@pytest.mark.parametrize("records", [1, 2, 7])
def test_columns_are_spread_evenly_even_if_a_receiver_gets_no_row(records: int) -> None:
    port = port_of(Partitioning.REBALANCE)
    port.columns(pyarrow.RecordBatch.from_pydict({"n": list(range(records))}), None)
    counts = {output.channel: output.count for output in port.drain()}
    assert counts == {ChannelId(target): len(range(target, records, WIDTH)) for target in range(min(WIDTH, records))}
