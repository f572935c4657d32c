"""Read the measurements of a queue of RabbitMQ, and publish an alert when a sensor has been hot three times in a row.

Each measurement counts once although the broker delivers some again. An alert may be published twice, under one id.

    pip install 'clonos[rabbitmq]'
    clonos run examples/rabbitmq_alerts.py
"""

from __future__ import annotations

import os
from typing import Any

from clonos import Job, codecs, rabbitmq

URL = os.environ.get("RABBITMQ_URL", "amqp://guest:guest@localhost:5672/%2F")
HOT, TIMES = 80, 3


def hot_streak(_sensor: str, times: int | None, measured: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Count how often in a row a sensor has been hot."""
    now = (times or 0) + 1 if measured["celsius"] > HOT else 0
    return now, {"sensor": measured["sensor"], "celsius": measured["celsius"], "times": now}


job = Job("alerts")
measured = job.source(rabbitmq.queue("measurements", url=URL, decode=codecs.json()), name="measurements")
streaks = measured.key_by("sensor").stateful_map(hot_streak, name="streaks")
alerts = streaks.filter(lambda streak: streak["times"] == TIMES, name="alerts")
alerts.sink(
    rabbitmq.exchange("alerts", url=URL, routing_key=lambda alert: f"hot.{alert['sensor']}", mandatory=False),
    name="out",
)
