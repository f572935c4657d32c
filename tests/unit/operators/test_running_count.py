"""Running counts, on rows and on columns, and the partitioning of columns, against plain Python."""

from __future__ import annotations

import datetime
from typing import Any, cast

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.core.values.column_keys import KeyGroups, split_columns
from clonos.core.values.key_encoding import KeyUnsupported, decode_key, encode_key
from clonos.core.values.keys import Router, key_of, state_key
from clonos.operators.columnar.row_forms import for_sink
from clonos.operators.operator import Operator, Scope, Times
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.steps.keyed import COUNTERS_MAX, RunningCount
from tests.harnesses.both_kernels import kernels
from tests.unit.operators.samples import ColumnsGiven

__all__ = ["kernels"]

COLLIDING = [1, True, 0, False, None, "a", "b", ("a", True), ("a", 1), (), b"a"]
COLUMNS = [
    pyarrow.array(["a", None, "b", "a", "", "b", "a"]),
    pyarrow.array([True, None, False, True]),
    pyarrow.array([3, 1, 3, None, -(2**63)]),
    pyarrow.array([b"a", b"", b"a"]),
    pyarrow.array([datetime.date(2024, 1, 2), None, datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
    pyarrow.array([0, 5, 86_400_000, 86_400_000], pyarrow.date64()),
    pyarrow.array([None, None], pyarrow.null()),
    pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1, None, 2]), pyarrow.array(["x", "y", "x", "never"])),
    pyarrow.array([], pyarrow.string()),
]


class Taken(Operator):
    """A follower that takes rows, or columns as a sink of columns does."""

    def __init__(self, takes_columns: bool = False) -> None:
        self.takes_columns = takes_columns
        self.records: list[Any] = []

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.records += rows

    def columns(self, batch: Any) -> None:
        if self.takes_columns:
            written: Any = for_sink(batch)
            self.records += [tuple(row.values()) for row in written.to_pylist()]
        else:
            super().columns(batch)


def counting(
    backend: StateBackend, takes_columns: bool = False, counters: int = COUNTERS_MAX
) -> tuple[RunningCount, Taken]:
    made, taken = RunningCount("words", counters_max=counters), Taken(takes_columns)
    made.out = taken
    made.open(Scope(cast(Any, None), StepState(backend, "words", made.state_specs)))
    return made, taken


def dumb_counts(counts: dict[bytes, int], keys: list[Any]) -> list[tuple[Any, int]]:
    found = []
    for key in keys:
        counts[encode_key(key)] = counts.get(encode_key(key), 0) + 1
        found.append((key, counts[encode_key(key)]))
    return found


def same_results(one: list[Any], other: list[Any]) -> bool:
    return repr(one) == repr(other)  # True and 1 are two keys


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.lists(st.sampled_from(COLLIDING), max_size=9), st.sampled_from(["barrier", "restore"]))),
    st.integers(1, 4),
)
def test_counts_are_those_of_the_plain_loop_through_barriers_and_restores(actions: list[Any], counters: int) -> None:
    backend, image, twin = StateBackend(None), StateImage(), dict[bytes, int]()
    made, taken = counting(backend, counters=counters)
    image.apply(backend.changes(True))
    for action in actions:
        if isinstance(action, list):
            taken.records = []
            made.keys(action)
            assert same_results(taken.records, dumb_counts(twin, action))
            continue
        made.prepare(1)
        image.apply(backend.changes(False))
        (entries,) = image.tables.values() or ({},)
        assert [(encode_key(key), count) for key, count in entries.items()] == list(twin.items())
        if action == "restore":
            backend, image = StateBackend(image), StateImage()
            made, taken = counting(backend, counters=counters)
            image.apply(backend.changes(True))


def of_columns(column: Any) -> list[Any]:
    return cast(list[Any], column.to_pylist())


def counting_columns(backend: StateBackend, takes_columns: bool = False, keys: str = "word") -> tuple[Any, Taken]:
    graph = JobGraph("job")
    graph.source(ColumnsGiven([])).key_by(keys).count(name="words")
    make = graph.steps[-1].make
    assert make is not None
    made, taken = make(), Taken(takes_columns)
    made.out, made.guard = taken, cast(Any, None)
    made.open(Scope(cast(Any, None), StepState(backend, "words", made.state_specs)))
    return made, taken


def image_of(full: bytes) -> StateImage:
    image = StateImage()
    image.apply(full)
    return image


def stored_counts(image: StateImage) -> list[tuple[bytes, int]]:
    """The counts in a snapshot, whether they are in rows or in columns."""
    backend = StateBackend(image)
    made, _ = counting_columns(backend)
    made.rows([("last", None)])  # which takes over what is in columns
    made.prepare(1)
    entries = {key: value for key, value in backend.table("words/state").contents().items() if key != "last"}
    return [(encode_key(key_of(key)), count) for key, count in entries.items()]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(COLUMNS), st.sampled_from(["rows", *["columns"] * 4, "restore", "old"]), st.integers(0, 3)
        )
    ),
    st.booleans(),
)
def test_counts_of_columns_are_those_of_their_rows(batches: list[Any], takes_columns: bool) -> None:
    backend, image, twin = StateBackend(None), StateImage(), dict[bytes, int]()
    made, taken = counting_columns(backend, takes_columns)
    image.apply(backend.changes(True))
    for column, form, start in [*batches, (COLUMNS[0], "restore", 0)]:
        part = column.slice(start)
        taken.records = []
        if form in ("restore", "old"):
            made.prepare(1)
            image.apply(backend.changes(False))
            full = backend.changes(True)
            assert stored_counts(image_of(full)) == list(twin.items())
            if form == "old":  # as versions without counts in columns have stored it
                old = StateBackend(None)
                old.table("words/state").update({state_key(decode_key(key)): count for key, count in twin.items()})
                full = old.changes(True)
            backend, image = StateBackend(image if form == "restore" else image_of(full)), image_of(full)
            made, taken = counting_columns(backend, takes_columns)
            continue
        if form == "rows":
            made.rows([(key, None) for key in of_columns(part)])
        elif len(part):
            rest = pyarrow.array(range(len(part)))
            made.keyed_columns(pyarrow.record_batch({"word": part, "rest": rest}), "word")
        assert same_results(taken.records, dumb_counts(twin, of_columns(part)))


def test_a_key_named_like_the_count_makes_the_output_rows() -> None:
    made, taken = counting_columns(StateBackend(None), True, "count")
    assert isinstance(made, RunningCount)
    made.keyed_columns(pyarrow.record_batch({"count": ["a", "a"]}), "count")
    assert taken.records == [("a", 1), ("a", 2)]


@settings(deadline=None)
@given(st.sampled_from(COLUMNS), st.lists(st.integers(0, 8), max_size=30), st.integers(1, 5), st.integers(1, 4))
def test_columns_are_partitioned_like_rows(column: Any, places: list[int], width: int, cached: int) -> None:
    column = column.take(pyarrow.array([place % len(column) for place in places if len(column)], pyarrow.int64()))
    batch = pyarrow.record_batch({"key": column, "place": pyarrow.array(range(len(column)), pyarrow.int64())})
    parts = split_columns(Router(width, 128), batch, KeyGroups(128, cached).of([column]))
    expected = Router(width, 128).split(of_columns(column), list(range(len(column))))[0]
    assert [part.column("place").to_pylist() for part in parts] == expected
    assert same_results(
        [of_columns(part.column("key")) for part in parts],
        [[of_columns(column)[place] for place in part] for part in expected],
    )


def test_a_column_whose_type_cannot_be_a_key_is_refused() -> None:
    for column in ([1.0, float("nan")], [[1]], [{"a": 1}], [datetime.datetime(2024, 1, 1)]):
        batch = pyarrow.record_batch({"key": column})
        with pytest.raises(KeyUnsupported):
            KeyGroups(128).of([batch.column("key")])
