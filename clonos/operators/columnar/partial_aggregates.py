"""Partial aggregates of columns in front of an exchange: see ``PartialStep``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.columnar.partial_form import PANE, PARTIAL_KEY, STATE_PREFIX
from clonos.operators.operator import Times
from clonos.operators.windows.grid import Spans
from clonos.operators.windows.partial_step import PartialStep

SMALL: Final = 1 << 40
"""Bound of whole numbers that are their own numbers as keys."""

PANES_MAX: Final = 1 << 20
"""Panes from the first to the last one of a batch from which on it passes as it is."""


class _Kind(NamedTuple):
    """Kind of batches, by their schema ``given``. ``schema``: that of partial aggregates, None if none can be made."""

    given: Any
    schema: Any = None
    key_types: Sequence[Any] = ()
    aggregates: Sequence[Any] = ()


class PartialAggregates(PartialStep):
    """Operator in front of an exchange by the columns of a key."""

    takes_columns = True
    changes_rows = False

    places_max: ClassVar[int] = 4
    """Numbers of keys and panes from the least to the highest one, for each record of a batch, up to which they are
    places in an array in place of keys of an index.
    """

    keys_max: ClassVar[int] = 1 << 14
    """Number of keys at which their numbers are forgotten, so that the index stays in the cache of a core."""

    def __init__(
        self,
        step: str,
        spans: Spans | None,
        aggregation: Aggregation[Any, Any],
        keys: tuple[str, ...],
        reads: tuple[str, ...],
        is_event_time: bool,
    ) -> None:
        """Creates the operator; ``reads`` are the columns that the aggregates read. See ``PartialStep``."""
        super().__init__(step, spans, is_event_time)
        self._aggregation = aggregation
        self._keys, self._names = list(keys), list(dict.fromkeys((*keys, *reads)))
        self._kind: _Kind | None = None
        self._index: Any = None  # of the keys

    def rows(self, rows: list[Any], times: Times = None) -> None:
        self.out.rows(rows, times)

    def columns(self, batch: RecordBatch) -> None:
        kind = self._kind
        if kind is None or not kind.given.equals(batch.schema):
            kind = self._kind = self.kind_of(batch.schema)
        if kind.schema is None or batch.num_rows < self.rows_min:
            self.out.columns(batch)
        elif not self._is_event_time:
            self._pass_on(batch, self.partials(kind, batch, None))
        else:
            self._by_pane(kind, batch)

    def _by_pane(self, kind: _Kind, batch: RecordBatch) -> None:
        import numpy
        import pyarrow

        reached_ns = self._reached_ns
        if reached_ns is None:
            self.out.columns(batch)
            return
        times = self.time_array(batch)
        assert times is not None and self._spans is not None, "windows in event time are on streams with timestamps"
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

    def _pass_on(self, batch: RecordBatch, partials: Any | None) -> None:
        """Passes the partial aggregates of a batch on, or the batch if they are hardly fewer."""
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
