"""Contract of sources and sinks of columns: which ones they are, and what sources may leave out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

Comparison = Literal["==", "<", "<=", ">", ">="]


class Bound(NamedTuple):
    """Condition on a column: its value is not null, and compares with ``value`` as ``comparison`` says."""

    column: str
    comparison: Comparison
    value: Any


@runtime_checkable
class DescribedSource(Protocol):
    """``Source`` of columns that knows them before it is read, so that a plan can check what steps do with them."""

    def column_schema(self) -> Any | None:
        """Returns the ``pyarrow.Schema`` of its batches, None if it is not known now."""


@runtime_checkable
class SampledSource(Protocol):
    """``Source`` whose splits carry its columns, so that each resume has those of the first start.

    With ``takes_schema = True`` users may give it the columns as ``schema=``.
    """

    def sampled_schema(self, splits: Sequence[bytes]) -> Any | None:
        """Returns the ``pyarrow.Schema`` of its batches, by the splits that the job began with; None if unknown."""


@runtime_checkable
class NarrowableSource(Protocol):
    """``Source`` of columns that need not read what no step uses."""

    def narrowed(self, columns: Collection[str] | None, bounds: Sequence[Bound]) -> Any:
        """Returns this source, which may leave out other columns than ``columns`` (None: all are used), and rows that
        do not meet all ``bounds``.

        It need not leave out anything: the steps after it decide. Marks stay usable, whatever is left out.
        """


@runtime_checkable
class PlannedSource(Protocol):
    """``Source`` of files that may have columns of other types than those of the plan."""

    def planned(self, schema: Any) -> Any:
        """Returns this source, whose records that do not fit the columns of ``schema`` are errors with their place."""


def gives_columns(source: object) -> bool:
    """Returns whether the reader of a source returns columns."""
    return bool(getattr(source, "gives_columns", False) or getattr(source, "is_columnar", False))


def writes_columns(sink: object) -> bool:
    """Returns whether the writers of an ``ImmediateSink`` have ``write_columns(first_number, batch)``, like ``write``
    for a ``pyarrow.RecordBatch``."""
    return bool(getattr(sink, "writes_columns", False))
