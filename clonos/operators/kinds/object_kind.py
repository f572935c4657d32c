"""Records that are Python objects: keys are compared as tables have them, so that 1 and True are two.

State is one table with an entry for each key. Nothing here loads numpy or pyarrow, which jobs of rows do not need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from clonos.core.values import ValueBeyondLimit
from clonos.core.values.column_keys import python_keys
from clonos.core.values.column_rows import values_of_column
from clonos.core.values.key_encoding import KeyUnsupported
from clonos.core.values.keys import state_key, state_keys
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.fields import Field, compared, itself
from clonos.operators.kinds.kind import By
from clonos.operators.kinds.object_batch import ObjectBatch, found_of_each
from clonos.operators.kinds.object_highest import ObjectHighest
from clonos.operators.kinds.object_spans import ObjectLastSpans, ObjectSpans
from clonos.operators.operator import Operator, Times, without
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import EACH, Numbers, StateSpec, keyed

KEYS: Final = keyed("keys")
SPANS: Final = keyed("spans")
LAST_SPANS: Final = replace(SPANS, numbers=(Numbers("opened", (1, EACH, 1)),))
OF_RECORDS: Final = (0, 0)
"""Place of the key of the records in an entry, whose key has what ``by`` returns too."""


class ObjectKind:
    """Kind of Python objects. Without ``by`` the stream's key is compared, else what ``by`` returns of a record too."""

    takes_columns = False

    def __init__(self, by: Callable[[Any], Any] | None = None) -> None:
        self._by = by

    @property
    def changes_rows(self) -> bool:
        """See ``Kind``."""
        return self._by is not None

    def of_rows(self, operator: Operator, rows: list[Any], times: Times) -> ObjectBatch | None:
        """See ``Kind``."""
        keys: list[Any] = [key for key, _ in rows]
        if self._by is not None:
            found, failed = found_of_each(self._by, [record for _, record in rows], operator.guard)
            if failed:
                rows, times, keys = without(rows, failed), times and without(times, failed), without(keys, failed)
            keys = list(zip(keys, found, strict=True))
        return ObjectBatch(_stored(operator, keys, rows), rows, times) if rows else None

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> ObjectBatch | None:
        """See ``Kind``."""
        rows, batch = operator.pairs_of(batch, key)  # which may have another form than the columns that ``by`` names
        if not rows:
            return None
        if not isinstance(self._by, Field) or self._by.name not in batch.schema.names:
            return self.of_rows(operator, rows, operator.times_of(batch))
        keys = list(zip(python_keys(batch, key), values_of_column(batch.column(self._by.name)), strict=True))
        return ObjectBatch(_stored(operator, keys, rows), rows, operator.times_of(batch))

    @property
    def key_specs(self) -> tuple[StateSpec, ...]:
        """See ``Kind``."""
        return (self._declared(KEYS),)

    @property
    def span_specs(self) -> tuple[StateSpec, ...]:
        """See ``Kind``."""
        return (self._declared(SPANS),)

    @property
    def last_span_specs(self) -> tuple[StateSpec, ...]:
        """See ``Kind``."""
        return (self._declared(LAST_SPANS),)

    @property
    def highest_specs(self) -> tuple[StateSpec, ...]:
        """See ``Kind``."""
        return self.key_specs

    def _declared(self, spec: StateSpec) -> StateSpec:
        return spec if self._by is None else replace(spec, key_place=OF_RECORDS)

    def firsts(self, state: StepState) -> ObjectFirsts:
        """See ``Kind``."""
        return ObjectFirsts(state.table(self._declared(KEYS)))

    def lasts(self, state: StepState, has_times: bool) -> ObjectLasts:
        """See ``Kind``."""
        return ObjectLasts(state.table(self._declared(KEYS)) if has_times else None)

    def spans(self, state: StepState, within_ns: int) -> ObjectSpans:
        """See ``Kind``."""
        return ObjectSpans(state.table(self._declared(SPANS)), within_ns)

    def last_spans(self, state: StepState, within_ns: int, has_times: bool) -> ObjectLastSpans:
        """See ``Kind``."""
        return ObjectLastSpans(state.table(self._declared(LAST_SPANS)), within_ns, has_times)

    def highest(self, state: StepState, by: By, k: int) -> ObjectHighest:
        """See ``Kind``."""
        return ObjectHighest(state.table(self._declared(KEYS)), compared(itself if by is None else by), k)


class ObjectFirsts:
    """First record of each key. The table has True for each key."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def choose(self, batch: ObjectBatch) -> list[int]:
        """See ``KeyChoice``."""
        entries, keys = self._table.entries, batch.keys
        places = [place for place, key in enumerate(keys) if key not in entries]
        if places:
            new = dict.fromkeys([keys[place] for place in places], True)
            if len(new) < len(places):
                first = {keys[place]: place for place in reversed(places)}  # the first place of a key stays
                places = sorted(first.values())
            self._table.update(new)
        return places


class ObjectLasts:
    """Last record of each key so far. The table has the latest instant of each key; it needs timestamps."""

    def __init__(self, table: Table | None) -> None:
        self._table = table

    def choose(self, batch: ObjectBatch) -> list[int]:
        """See ``KeyChoice``."""
        if self._table is None or batch.times is None:
            return sorted({key: place for place, key in enumerate(batch.keys)}.values())
        entries, last = self._table.entries, dict[Any, int]()
        for place, (key, instant_ns) in enumerate(zip(batch.keys, batch.times, strict=True)):
            latest_ns = entries.get(key)
            if latest_ns is None or instant_ns >= latest_ns:
                entries[key] = instant_ns
                last[key] = place
        self._table.changed.update(dict.fromkeys(last))
        return sorted(last.values())


def _stored(operator: Operator, keys: list[Any], rows: list[Any]) -> list[Any]:
    """Returns keys as tables have them.

    Raises: StepFailed: a key cannot be one.
    """
    try:
        return state_keys(keys)
    except (KeyUnsupported, ValueBeyondLimit):
        for index, (key, (_, record)) in enumerate(zip(keys, rows, strict=True)):
            try:
                state_key(key)
            except (KeyUnsupported, ValueBeyondLimit) as error:
                operator.guard.caught(error, record, index)
        raise
