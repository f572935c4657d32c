"""Partial aggregates in front of an exchange: a batch is aggregated by key and pane before it leaves.

The windows after the exchange merge them as they merge panes. Each batch is aggregated for itself and passed on at
once, so nothing waits here for a watermark or a barrier. Records of panes behind the watermark of this task pass as
they are: the windows decide which of them are late. So do batches that would hardly become smaller, and all batches of
a task that has been idle: the watermark of the windows may be ahead of its own then.

State: the watermark, and whether the task has been idle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

from clonos.core.model.watermark import IDLE, Activity, Watermark
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.columnar.partial_form import PANE, PARTIAL_KEY, STATE_PREFIX
from clonos.operators.operator import Operator, Scope, Times
from clonos.operators.state.state_spec import StateScope, StateSpec, small
from clonos.operators.windows.grid import Spans

SMALL: Final = 1 << 40
"""Bound of whole numbers that are their own numbers as keys."""

PANES_MAX: Final = 1 << 20
"""Panes from the first to the last one of a batch from which on it passes as it is."""

WATERMARK: Final = small("partial/watermark", StateScope.MAX)
"""Table with the watermark, of which the windows must not know a later one, and whether the task has been idle."""

HAS_BEEN_IDLE: Final = 1
"""Key of the state that says so; the watermark has 0."""


class _Kind(NamedTuple):
    """Kind of batches, by their schema ``given``. ``schema``: that of partial aggregates, None if none can be made."""

    given: Any
    schema: Any = None
    key_types: Sequence[Any] = ()
    aggregates: Sequence[Any] = ()


class PartialAggregates(Operator):
    """Operator in front of an exchange by the columns of a key, for tumbling and sliding windows after it."""

    takes_columns = True
    changes_rows = False

    rows_min: ClassVar[int] = 16
    """Rows of a batch below which it passes as it is."""

    gain_min: ClassVar[float] = 2
    """Records for each partial aggregate below which batches pass as they are, up to the next barrier."""

    places_max: ClassVar[int] = 4
    """Numbers of keys and panes from the least to the highest one, for each record of a batch, up to which they are
    places in an array in place of keys of an index.
    """

    keys_max: ClassVar[int] = 1 << 14
    """Number of keys at which their numbers are forgotten, so that the index stays in the cache of a core."""

    def __init__(
        self,
        step: str,
        spans: Spans,
        aggregation: Aggregation[Any, Any],
        keys: tuple[str, ...],
        reads: tuple[str, ...],
        is_event_time: bool,
    ) -> None:
        """Creates the operator for the windows ``step``; ``reads`` are the columns that the aggregates read."""
        self.state_step, self._spans, self._aggregation = step, spans, aggregation
        self._keys, self._names = list(keys), list(dict.fromkeys((*keys, *reads)))
        self._is_event_time = is_event_time
        self._kind: _Kind | None = None
        self._index: Any = None  # of the keys
        self._pays = True

    @property
    def state_specs(self) -> tuple[StateSpec, ...]:
        return (WATERMARK,)

    def open(self, scope: Scope) -> None:
        self._reached = scope.state.table(WATERMARK)

    def prepare(self, checkpoint: int) -> None:
        self._pays = True  # a task that takes over begins here, and must make the same batches

    def on_watermark(self, watermark: Watermark) -> None:
        if self._is_event_time:
            if not isinstance(watermark, Activity):
                self._reached.set(0, watermark)
            elif watermark is IDLE:
                self._reached.set(HAS_BEEN_IDLE, True)
        self.out.on_watermark(watermark)

    # --- records

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows(rows, times)

    def columns(self, batch: RecordBatch) -> None:
        kind = self._kind
        if kind is None or not kind.given.equals(batch.schema):
            kind = self._kind = self.kind_of(batch.schema)
        if kind.schema is None or not self._pays or batch.num_rows < self.rows_min:
            self.out.columns(batch)
        elif not self._is_event_time:
            self._pass_on(batch, self.partials(kind, batch, None))
        else:
            self._by_pane(kind, batch)

    def _by_pane(self, kind: _Kind, batch: RecordBatch) -> None:
        import numpy
        import pyarrow

        reached_ns: int | None = self._reached.entries.get(0)
        if reached_ns is None or HAS_BEEN_IDLE in self._reached.entries:  # the windows may know a later watermark
            self.out.columns(batch)
            return
        times = self.time_array(batch)
        assert times is not None, "windows in event time are on streams with timestamps"
        panes = self._spans.grid.indexes_of(times)
        first = self._first_open(int(panes.min()), int(panes.max()), reached_ns)
        behind = panes < first
        if not behind.any():
            self._pass_on(batch, self.partials(kind, batch, panes))
            return
        self.out.columns(batch.filter(pyarrow.array(behind)))
        ahead = numpy.flatnonzero(~behind)
        if len(ahead):
            rest = batch.take(pyarrow.array(ahead))
            self._pass_on(rest, self.partials(kind, rest, panes[ahead]))

    def _first_open(self, low: int, high: int, reached_ns: int) -> int:
        """Returns the first pane from ``low`` on that a window has which has not ended; at most ``high`` + 1."""
        spans = self._spans
        # A record of 1970 is billions of panes behind the others, so they are not looked at one by one.
        return low + bisect_right(
            range(low, high + 1), reached_ns, key=lambda pane: spans.end_ns(spans.last_end_of(pane))
        )

    def _pass_on(self, batch: RecordBatch, partials: Any | None) -> None:
        """Passes the partial aggregates of a batch on, or the batch if they are hardly fewer."""
        self._pays = partials is not None
        self.out.columns(batch if partials is None else partials)

    def partials(self, kind: _Kind, batch: RecordBatch, panes: Any) -> Any | None:
        """Returns the partial aggregates of a batch, in the order of panes, then of the first records of keys; None if
        they are hardly fewer than its records.
        """
        import pyarrow

        from clonos.kernels.partition import gather

        groups, low, width = self._numbers(kind, [batch.column(name) for name in self._keys]), 0, 1
        if panes is not None:
            low, width = int(panes.min()), int(panes.max()) - int(panes.min()) + 1
            if width > PANES_MAX:
                return None
        grouped = _grouped(groups, None if width == 1 else panes - low, width, self.places_max * batch.num_rows)
        if len(grouped.first) * self.gain_min > batch.num_rows:
            return None
        columns = gather(batch.select(self._keys), grouped.first).columns
        if panes is not None:
            columns.append(pyarrow.array(panes[grouped.first]))
        for each in kind.aggregates:
            columns += map(pyarrow.array, grouped.state(each, each.cells(batch)).values())
        return pyarrow.RecordBatch.from_arrays(columns, schema=kind.schema)

    def _numbers(self, kind: _Kind, columns: list[Any]) -> Any:
        """Returns a number for the key of each row, which leaves room to number the panes too."""
        import numpy
        import pyarrow

        from clonos.kernels.packed_keys import KeyIndex

        (first, *others) = columns
        if not others and first.type == pyarrow.int64() and not first.null_count:
            keys = first.to_numpy()
            if int(keys.min()) > -SMALL and int(keys.max()) < SMALL:
                return keys
        if self._index is None or len(self._index) >= self.keys_max:
            self._index = KeyIndex(kind.key_types)
        return self._index.add(columns).astype(numpy.int64)

    def kind_of(self, schema: Any) -> _Kind:
        """Returns what is made of batches of a schema."""
        import pyarrow

        from clonos.kernels.packed_keys import key_types
        from clonos.operators.columnar.aggregate_maker import column_aggregates

        self._index = None
        aggregates = column_aggregates(self._aggregation, schema)
        if aggregates is None or not all(each.adds_states for each in aggregates):
            return _Kind(schema)
        if any(name not in schema.names for name in self._keys):
            return _Kind(schema)
        fields = [schema.field(name) for name in self._keys]
        types = key_types([each.type for each in fields])
        if types is None:
            return _Kind(schema)
        if self._is_event_time:
            fields.append(pyarrow.field(PANE, pyarrow.int64()))
        dtypes = {name: dtype for each in aggregates for name, dtype in each.dtypes().items()}
        fields += [pyarrow.field(STATE_PREFIX + name, pyarrow.from_numpy_dtype(each)) for name, each in dtypes.items()]
        return _Kind(schema, pyarrow.schema(fields, {PARTIAL_KEY: b""}), types, aggregates)


class _Grouped(NamedTuple):
    """Records of a batch by key and pane.

    ``places``: the place of each record in arrays of ``size``; ``found``: the places that have records, in the order of
    panes, then of the first records of keys; ``first``: the first record of each of these.
    """

    places: Any
    size: int
    found: Any
    first: Any

    def state(self, aggregate: Any, cells: Any) -> dict[str, Any]:
        """Returns the columns of state of an aggregate over the records, one row for each of ``found``."""
        import numpy

        state = {name: numpy.zeros(self.size, dtype) for name, dtype in aggregate.dtypes().items()}
        aggregate.add(state, self.places, cells)
        return {name: column[self.found] for name, column in state.items()}


def _grouped(groups: Any, panes: Any, width: int, places_max: int) -> _Grouped:
    """Groups records by the numbers of their keys, and their panes from 0 on; None if all are of one pane.

    ``places_max``: places up to which numbers are addresses.
    """
    import numpy

    from clonos.kernels.index import new_index

    count, least = len(groups), int(groups.min())
    span = int(groups.max()) - least + 1
    if span * width <= places_max:  # addressing costs less than looking up
        places, size = groups - least, span * width
        if panes is not None:
            places += panes * span
    else:
        index = new_index("int64")
        places = index.add(groups if panes is None else groups * width + panes)
        size = len(index)
    first = numpy.full(size, count)
    first[places[::-1]] = numpy.arange(count - 1, -1, -1)  # of equal places the last one assigned stays
    found = numpy.flatnonzero(first < count)
    first = first[found]
    order = numpy.argsort(first if panes is None else panes[first] * count + first)
    return _Grouped(places, size, found[order], first[order])
