"""Apache Iceberg: ``iceberg.table`` appends the rows of each checkpoint to a table, as one snapshot;
``iceberg.read`` reads a snapshot of one.

It needs pyiceberg: ``pip install 'clonos[iceberg]'``.
"""

from __future__ import annotations

from clonos.connectors.iceberg.iceberg_sink import IcebergTableSink, read, table
from clonos.core.model.missing_names import explains_names

__all__ = ["table", "read", "IcebergTableSink"]

explains_names(
    __name__,
    {
        "sink": "Use table.",
        "write": "Use table.",
        "append": "Use table.",
        "source": "Use read.",
        "scan": "Use read.",
    },
)
