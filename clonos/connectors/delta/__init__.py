"""Delta Lake: ``delta.table`` appends the rows of each checkpoint to a table, as one transaction; ``delta.read`` reads
a version of one, and ``delta.changes`` what changes in it.

It needs deltalake: ``pip install 'clonos[delta]'``.
"""

from __future__ import annotations

from clonos.connectors.delta.delta_sink import DeltaTableSink, table
from clonos.connectors.delta.delta_sources import changes, read
from clonos.core.model.missing_names import explains_names

__all__ = ["table", "read", "changes", "DeltaTableSink"]

explains_names(
    __name__,
    {
        "sink": "Use table.",
        "write": "Use table.",
        "source": "Use read or changes.",
        "cdc": "Use changes.",
        "stream": "Use changes.",
        "scan": "Use read.",
    },
)
