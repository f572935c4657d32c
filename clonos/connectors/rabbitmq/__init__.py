"""RabbitMQ: ``rabbitmq.queue`` reads the messages of a queue, ``rabbitmq.exchange`` publishes rows.

It needs pika: ``pip install 'clonos[rabbitmq]'``.
"""

from __future__ import annotations

from clonos.connectors.rabbitmq.exchange_sink import exchange
from clonos.connectors.rabbitmq.message import Message
from clonos.connectors.rabbitmq.queue_source import queue
from clonos.core.model.missing_names import explains_names

__all__ = [
    "queue",
    "exchange",
    "Message",
]

explains_names(
    __name__,
    {
        "source": "Use queue.",
        "sink": "Use exchange.",
        "consume": "Use queue.",
        "publish": "Use exchange.",
    },
)
