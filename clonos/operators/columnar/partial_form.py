"""Form of batches of partial aggregates: what the sender of an exchange tells the windows after it.

A batch has the columns of the key, ``PANE`` in event time, and the columns of state of each aggregate; a row stands for
the records of one key in one pane. The metadata of its schema says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.aggregates.counting import Count
from clonos.operators.aggregates.numeric import Mean, Sum
from clonos.operators.aggregates.values import Max, Min
from clonos.operators.columnar.support import parts_of

PARTIAL_KEY: Final = b"clonos.partial"
"""Key of the metadata; its value is empty."""

PANE: Final = "clonos.pane"
STATE_PREFIX: Final = "clonos.state."
"""Names of columns that are no columns of the key."""


def can_be_partial(aggregation: Aggregation[Any, Any]) -> bool:
    """Returns whether an aggregation that ``columns_read`` accepts is the same in whatever order its records come."""
    return all(type(each) in (Count, Sum, Mean, Min, Max) for each in parts_of(aggregation).values())


def is_partial(batch: RecordBatch) -> bool:
    """Returns whether a batch has partial aggregates, and no records."""
    metadata = batch.schema.metadata
    return bool(metadata) and PARTIAL_KEY in metadata


def runs_of(batch: RecordBatch) -> Iterator[tuple[int | None, Any]]:
    """Yields the parts of a batch with partial aggregates of one pane, and its number; None in processing time."""
    import numpy

    if PANE not in batch.schema.names:
        yield None, batch
        return
    panes = batch.column(PANE).to_numpy()
    begins = [0, *(numpy.flatnonzero(panes[1:] != panes[:-1]) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(panes)], strict=True):
        yield int(panes[begin]), batch.slice(begin, end - begin)


def states_of(batch: RecordBatch) -> dict[str, Any]:
    """Returns the columns of state in a batch by name, as numpy arrays."""
    names = [name for name in batch.schema.names if name.startswith(STATE_PREFIX)]
    return {name.removeprefix(STATE_PREFIX): batch.column(name).to_numpy(zero_copy_only=False) for name in names}
