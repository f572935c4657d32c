"""Redis streams: ``redis.source`` reads the entries of streams, ``redis.sink`` adds rows.

It needs redis-py: ``pip install 'clonos[redis]'``.
"""

from __future__ import annotations

from clonos.connectors.redis.entry_sink import sink
from clonos.connectors.redis.entry_source import Entry, source
from clonos.core.model.missing_names import explains_names

__all__ = [
    "source",
    "sink",
    "Entry",
]

explains_names(
    __name__,
    {
        "stream": "Use source.",
        "Message": "Use Entry.",
        "xread": "Use source.",
        "xadd": "Use sink.",
    },
)
