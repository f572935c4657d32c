"""A chain whose step has state in columns: what it emits after restores, and the memory that it reports."""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.model.watermark import Watermark
from clonos.core.ports.operator_chain import ChainContext
from clonos.operators.chain import Input, Node, OperatorChain, VertexImage
from clonos.operators.chain_outputs import ToEdge
from clonos.operators.operator import Operator, Scope, Times
from clonos.operators.state.column_table import ColumnSpec
from clonos.operators.state.keyed_state import StateImage
from clonos.operators.state.state_spec import Numbers, StateKind, StateScope, StateSpec
from tests.unit.operators.driver import Clock

KEYS = ["a", "b", "c", None, "é"]
SPEC = ColumnSpec((pyarrow.string(),), {"n": numpy.int64, "row": numpy.int64}, {"row": -1})

ROWS = StateSpec("rows", StateKind.ROWS, StateScope.REFERRED, owner="keys")
KEYED = StateSpec("keys", StateKind.COLUMNS, StateScope.KEYED, numbers=(Numbers("rows", "row"),))

actions = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)), min_size=1, max_size=6),
        st.sampled_from(["barrier", "barrier", "read", "watermark"]),
    ),
    max_size=30,
)


class Latest(Operator):
    """Counts the records of each key and keeps the last one; a watermark emits all keys and forgets rare ones."""

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return KEYED, ROWS

    def open(self, scope: Scope) -> None:
        self.table = scope.state.column_table(KEYED, SPEC)
        self.store = scope.state.row_store(ROWS)

    def rows(self, rows: list[Any], times: Times = None) -> None:
        slots = self.table.slots([pyarrow.array([key for key, _ in rows], pyarrow.string())])
        self.table.touch(slots)
        numpy.add.at(self.table.values["n"], slots, 1)
        batch = pyarrow.record_batch({"value": [[value] for _, value in rows]})
        self.store.replace(self.table, "row", slots, batch)

    def on_watermark(self, watermark: Watermark) -> None:
        live = self.table.live()
        if len(live):
            counts = self.table.values["n"][live].tolist()
            last = self.store.take(self.table.values["row"][live]).column(0).to_pylist()
            self.out.rows(list(zip(self.table.keys(live)[0].to_pylist(), counts, last, strict=True)))
        rare = numpy.flatnonzero(self.table.values["n"][: len(self.table)] < 3)
        rare = rare[numpy.isin(rare, live)]
        self.store.discard(self.table, "row", rare)
        self.table.remove(rare)


class Emitted:
    """What leaves the chain."""

    def __init__(self) -> None:
        self.rows_emitted: list[Any] = []

    def rows(self, port: int, rows: list[Any], keys: Any = None, times: Any = None) -> None:
        self.rows_emitted += rows


class Life:
    """The chain of one task and the image of its standby."""

    def __init__(self) -> None:
        self.emitted = Emitted()
        self.image = StateImage()
        self.unread: list[Any] = []
        self._open(None)
        self.barrier(0)

    def _open(self, restored: StateImage | None) -> None:
        nodes = Node("latest", Latest, (1,)), Node("to edge", lambda: ToEdge(0))
        self.chain: OperatorChain = VertexImage("steps", nodes, (Input(0),)).new_chain()
        collector: Any = self.emitted
        context = ChainContext("steps/0", 0, 0, 1, 128, "job", 0, 1, Clock(), collector, "", inline_bytes_max=0)
        self.chain.open(context, restored, None)

    def barrier(self, checkpoint: int) -> None:
        found = self.chain.snapshot(checkpoint, checkpoint == 0)
        self.unread.append((found.changes, found.more))

    def read(self) -> None:
        for changes, more in self.unread:
            for piece in (changes, *(more or ())):
                self.image.apply(piece)
            if more is not None:
                more.release()
        self.unread.clear()

    def restore(self) -> None:
        """Goes on from the standby's image, as a new incarnation does, and begins another one."""
        self.read()
        self.chain.close()
        self._open(self.image)
        self.image = StateImage()
        self.barrier(0)


@settings(deadline=None)
@given(actions)
def test_a_chain_that_is_restored_at_each_barrier_emits_the_same(actions: list[Any]) -> None:
    steady, troubled = Life(), Life()
    for number, action in enumerate([*actions, "watermark"], start=1):
        for life in (steady, troubled):
            if isinstance(action, list):
                life.chain.process_rows(0, action)
            elif action == "watermark":
                life.chain.advance_watermark(number)
            elif action == "read":
                life.read()
            else:
                life.barrier(number)
                if life is troubled:
                    life.restore()
    assert troubled.emitted.rows_emitted == steady.emitted.rows_emitted


def test_a_chain_reports_the_memory_of_its_state_in_columns() -> None:
    life = Life()
    before = life.chain.state_bytes()
    life.chain.process_rows(0, [(f"key {number}", number) for number in range(10_000)])
    assert 10_000 * 16 < life.chain.state_bytes() - before < 10_000 * 400
