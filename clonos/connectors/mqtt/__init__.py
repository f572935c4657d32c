"""MQTT 5: ``mqtt.source`` reads the messages of topics, ``mqtt.sink`` publishes rows.

It needs paho-mqtt: ``pip install 'clonos[mqtt]'``.
"""

from __future__ import annotations

from clonos.connectors.mqtt.session_source import Message, source
from clonos.connectors.mqtt.topic_sink import sink
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
