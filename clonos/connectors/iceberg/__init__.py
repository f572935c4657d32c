"""Apache Iceberg: ``iceberg.table`` appends the rows of each checkpoint to a table, as one snapshot; ``iceberg.read``
reads a snapshot of one, and ``iceberg.changes`` what is appended to it.

It needs pyiceberg: ``pip install 'clonos[iceberg]'``.
"""

from __future__ import annotations

from clonos.connectors.iceberg.iceberg_sink import IcebergTableSink, table
from clonos.connectors.iceberg.iceberg_sources import changes, read
from clonos.core.model.missing_names import explains_names

__all__ = ["table", "read", "changes", "IcebergTableSink"]

explains_names(
    __name__,
    {
        "sink": "Use table.",
        "write": "Use table.",
        "append": "Use table.",
        "source": "Use read or changes.",
        "cdc": "Use changes.",
        "stream": "Use changes.",
        "incremental": "Use changes.",
        "scan": "Use read.",
    },
)
