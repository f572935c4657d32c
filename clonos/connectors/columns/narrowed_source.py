"""Plan of a source of columns: those that are used, the bounds of rows, and the schema."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any, Self

from clonos.operators.column_contract import Bound


class NarrowedSource:
    """Base of sources that read what steps use alone. ``used``: None for all columns."""

    used: frozenset[str] | None = None
    bounds: tuple[Bound, ...] = ()
    planned_schema: Any = None

    def narrowed(self, columns: Collection[str] | None, bounds: Sequence[Bound]) -> Self:
        """See ``column_contract.NarrowableSource``."""
        source = copy.copy(self)
        source.used = self.used if columns is None else frozenset(columns)
        source.bounds = (*self.bounds, *bounds)
        return source

    def planned(self, schema: Any) -> Self:
        """See ``column_contract.PlannedSource``."""
        source = copy.copy(self)
        source.planned_schema = schema
        return source
