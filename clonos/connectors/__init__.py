"""Sources and sinks: where records come from and where results become visible, exactly-once.

A source can be read again from a position or journals what it reads; a sink commits by epoch or is released by
a keeper.
"""

from __future__ import annotations

from clonos.connectors import files, sockets
from clonos.connectors.driver_outputs import collect, stdout
from clonos.connectors.in_memory import blackhole, values
from clonos.connectors.tables.table_sink import dbapi, sqlite

__all__ = ["files", "sockets", "values", "sqlite", "dbapi", "stdout", "collect", "blackhole"]
