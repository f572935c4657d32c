"""Choice of a source between one split, whose order is kept, and many that are read at once."""

from __future__ import annotations

import copy
from typing import Self

from clonos.connectors.kit.history import HistorySource


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
