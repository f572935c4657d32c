"""First step of a pushed source: it emits what it is fed once, in order, and snapshots lose nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.connectors import blackhole, sockets, values
from clonos.core.model.errors import InternalError
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import JournalledChain, NothingToRead
from clonos.operators.journal_source import END_OF_JOURNAL, JournalHead
from clonos.operators.operator import Operator, Times
from clonos.operators.split_source import PositionMalformed

PUSHED = sockets.lines("localhost", 9)
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=5), max_size=12)


class Rows(Operator):
    def __init__(self) -> None:
        self.all: list[Any] = []

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.all += rows


def new_head(position: bytes | None = None) -> tuple[JournalHead, list[Any]]:
    head = JournalHead("source", PUSHED)
    head.out = rows = Rows()
    if position is not None:
        head.restore(position)
    return head, rows.all


def journal_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def read_all(head: JournalHead) -> None:
    while not isinstance(found := head.poll(3), NothingToRead):
        head.read(*found)


def test_a_journal_source_has_nothing_to_read_before_it_is_fed() -> None:
    head, _ = new_head()
    assert head.poll(10) is NothingToRead.NOW
    with pytest.raises(InternalError, match="asked for 1 records"):
        head.read(0, 1)


def test_journalled_records_are_read_in_the_order_fed() -> None:
    head, rows = new_head()
    assert head.feed(b"one\ntwo\r\n")
    assert head.feed(b"three\n")
    assert (head.poll(2), head.poll(10), head.unread_bytes()) == ((0, 2), (0, 3), 15)
    head.read(0, 2)
    assert (rows, head.poll(10), head.unread_bytes()) == (["one", "two"], (0, 1), 6)


def test_the_end_follows_the_last_record() -> None:
    head, rows = new_head()
    assert not head.feed(b"one\n" + END_OF_JOURNAL)
    assert head.poll(10) == (0, 1)
    head.read(0, 1)
    assert (head.poll(10), rows) == (NothingToRead.ALL_READ, ["one"])
    assert not new_head(head.position())[0].feed(b"")


def test_an_end_without_records_ends_the_source() -> None:
    head, _ = new_head()
    assert head.feed(b"one\n")
    assert not head.feed(END_OF_JOURNAL)
    assert head.poll(10) == (0, 1)


@given(LINES, st.data())
def test_from_every_cut_a_restored_source_reads_each_record_once(lines: list[str], data: st.DataObject) -> None:
    places = st.integers(0, len(lines))
    cuts = sorted(data.draw(st.tuples(places, places, places)))
    head, rows = new_head()
    taken: list[Any] = []
    for start, end in pairwise((0, *cuts, len(lines))):
        head.feed(journal_of(lines[start:end]))
        unread = head.poll(100)
        head.read(0, data.draw(st.integers(1, unread[1]))) if not isinstance(unread, NothingToRead) else None
        taken += rows
        head, rows = new_head(head.position())
    head.feed(END_OF_JOURNAL)
    read_all(head)
    assert taken + rows == lines


def test_a_position_of_another_source_is_refused() -> None:
    with pytest.raises(PositionMalformed, match="position of the source source"):
        new_head(b"\x93\x01\x02\x03")


def pushed_graph(parallelism: int | None = None) -> JobGraph:
    graph = JobGraph("pushed")
    graph.source(PUSHED, parallelism=parallelism).map(str.upper).sink(blackhole())
    return graph


def test_the_vertex_of_a_pushed_source_has_one_journalled_task_and_needs_a_keeper() -> None:
    image = pushed_graph().compile(Options(), parallelism=4)
    source = image.plan.vertices[0]
    assert (source.parallelism, source.is_journalled, source.has_effects) == (1, True, False)
    assert image.plan.with_keepers == (0,)
    assert image.pushed == {0: PUSHED}
    assert image.splits == {"source": ()}


def test_the_chain_of_a_pushed_source_is_fed_and_read() -> None:
    chain: JournalledChain = pushed_graph().compile(Options()).new_chain(0)
    assert chain.feed(b"one\n")
    assert (chain.poll(5), chain.unread_bytes()) == ((0, 1), 4)


def test_a_source_that_is_not_pushed_has_no_journal() -> None:
    graph = JobGraph("values")
    graph.source(values(range(3))).sink(blackhole())
    assert not any(vertex.is_journalled for vertex in graph.compile(Options()).plan.vertices)


def test_a_pushed_source_with_several_tasks_is_refused() -> None:
    with pytest.raises(InvalidJob, match="its source has a single connection"):
        pushed_graph(parallelism=2)


def test_a_pushed_source_in_a_job_without_keepers_is_refused() -> None:
    with pytest.raises(InvalidJob, match="keepers is 0: a failure would lose what it has read"):
        pushed_graph().compile(Options(keepers=0))


class Identified:
    """Lines whose identity is their first letter, except for those that begin with '-'."""

    identities_retained = 3

    def connect(self, offset_bytes: int) -> Any:
        raise NotImplementedError

    def cut(self, data: bytes) -> list[bytes]:
        return data.splitlines(keepends=True)

    def decode(self, records: list[bytes]) -> list[str]:
        return [record.decode().strip() for record in records]

    def identity(self, record: bytes) -> bytes | None:
        return None if record.startswith(b"-") else record[:1]


def identified_head(position: bytes | None = None) -> tuple[JournalHead, list[Any]]:
    head = JournalHead("source", Identified())
    head.out = rows = Rows()
    if position is not None:
        head.restore(position)
    return head, rows.all


def test_a_record_counts_once_while_its_identity_is_among_the_last_ones() -> None:
    head, rows = identified_head()
    head.feed(b"a1\nb1\na2\n-\n-\nc1\nd1\na3\nb2\n")
    read_all(head)
    assert rows == ["a1", "b1", "-", "-", "c1", "d1", "b2"]  # a was seen again after b, and is among the last three


def test_a_snapshot_has_the_identities_of_the_records_that_were_read() -> None:
    head, rows = identified_head()
    head.feed(b"a1\nb1\na2\n")
    head.read(0, 1)
    successor, more = identified_head(head.position())
    successor.feed(b"b2\nc1\n")
    read_all(successor)
    assert rows + more == ["a1", "b1", "c1"]


class Continued(Identified):
    """Lines whose cursor is the line."""

    identities_retained = 0

    def identity(self, record: bytes) -> None:
        return None

    def connect_at(self, offset_bytes: int, cursor: bytes | None) -> Any:
        raise NotImplementedError

    def cursor(self, record: bytes) -> bytes:
        return record.strip()


def continued_head(position: bytes | None = None) -> JournalHead:
    head = JournalHead("source", Continued())
    head.out = Rows()
    if position is not None:
        head.restore(position)
    return head


def test_the_cursor_is_that_of_the_last_record_fed_and_is_part_of_a_snapshot() -> None:
    assert continued_head().cursor is None
    head = continued_head()
    head.feed(b"one\ntwo\n")
    assert head.cursor == b"two"
    assert continued_head(head.position()).cursor == b"two"
    read_all(head)
    head.feed(END_OF_JOURNAL)
    successor = continued_head(head.position())
    assert successor.cursor == b"two"
    successor.feed(b"three\n")
    assert successor.cursor == b"three"


def test_the_head_of_a_source_without_cursors_has_none() -> None:
    head, _ = new_head()
    head.feed(b"one\n")
    assert head.cursor is None
