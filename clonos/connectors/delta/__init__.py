"""Delta Lake: ``delta.table`` appends the rows of each checkpoint to a table, as one transaction.

It needs deltalake: ``pip install 'clonos[delta]'``.
"""

from __future__ import annotations

from clonos.connectors.delta.delta_sink import DeltaTableSink, table
from clonos.core.model.missing_names import explains_names

__all__ = ["table", "DeltaTableSink"]

explains_names(
    __name__,
    {
        "sink": "Use table.",
        "write": "Use table.",
    },
)
