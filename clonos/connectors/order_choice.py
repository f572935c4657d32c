"""Choice of a source between one split, whose order is kept, and many that are read at once."""

from __future__ import annotations

import copy
from typing import Self

from clonos.connectors.kit.history import HistorySource


def note_of_order(name: str, count: int, parallelism: int, otherwise: str) -> str:
    """Returns the note of a source that few tasks read because of its order; ``otherwise``: what ordered=False does."""
    return f"{name} is read by {count} of {parallelism} tasks, so that its order is kept; ordered=False {otherwise}"


class OrderChoice(HistorySource):
    """Base of sources that can keep the order of their records. ``ordered`` None lets the job decide."""

    ordered: bool | None

    def in_order(self) -> Self:
        """See ``connector_contract.OrderedSource``."""
        if self.ordered is not None:
            return self
        source = copy.copy(self)
        source.ordered = True
        return source
