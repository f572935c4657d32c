"""PostgreSQL: ``postgres.table`` writes rows, ``postgres.query`` reads them, ``postgres.changes`` follows changes, and
``postgres.nearest`` asks for the rows whose vectors are near to one.

It needs psycopg 3: ``pip install 'clonos[postgres]'``.
"""

from __future__ import annotations

from clonos.connectors.postgres.change_stream import Change
from clonos.connectors.postgres.changes import ChangesLost, changes
from clonos.connectors.postgres.nearest import NearestFailed, VectorUnusable, nearest
from clonos.connectors.postgres.query import QueryChanged, QueryKeyUnusable, query
from clonos.connectors.postgres.table import table
from clonos.connectors.postgres.table_copies import SnapshotLost
from clonos.core.model.missing_names import explains_names

__all__ = [
    "query",
    "changes",
    "table",
    "nearest",
    "Change",
    "ChangesLost",
    "QueryChanged",
    "QueryKeyUnusable",
    "SnapshotLost",
    "NearestFailed",
    "VectorUnusable",
]

explains_names(
    __name__,
    {
        "cdc": "Use changes.",
        "replication": "Use changes.",
        "source": "Use query or changes.",
        "read": "Use query.",
        "read_sql": "Use query.",
        "sink": "Use table.",
        "write": "Use table.",
        "search": "Use nearest.",
        "neighbours": "Use nearest.",
    },
)
