"""Connectors: exactly-once sources and sinks.

A source can be replayed from a position, or the runtime keeps what it reads in a journal. A transactional sink commits
with each checkpoint; an immediate sink writes a row as soon as the log that led to it is replicated.
"""

from __future__ import annotations

from clonos.connectors import files, secrets, sockets
from clonos.connectors.driver_outputs import collect, stdout
from clonos.connectors.in_memory import blackhole, values
from clonos.connectors.tables.table_sink import dbapi, sqlite

__all__ = ["files", "secrets", "sockets", "values", "sqlite", "dbapi", "stdout", "collect", "blackhole"]
