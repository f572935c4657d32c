"""NATS JetStream: ``nats.source`` reads the messages of a stream, ``nats.sink`` publishes rows.

It needs nats-py: ``pip install 'clonos[nats]'``.
"""

from __future__ import annotations

from clonos.connectors.nats.message import Message
from clonos.connectors.nats.stream_source import source
from clonos.connectors.nats.subject_sink import sink
from clonos.core.model.missing_names import explains_names

__all__ = [
    "source",
    "sink",
    "Message",
]

explains_names(
    __name__,
    {
        "subscribe": "Use source.",
        "publish": "Use sink.",
    },
)
