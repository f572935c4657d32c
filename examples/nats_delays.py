"""Read the departures of trains from a stream of NATS, and publish a train whose delay has grown by five minutes.

Each departure counts once, and each delay is in its stream once, although processes and the server may die.

    pip install 'clonos[nats]'
    clonos run examples/nats_delays.py
"""

from __future__ import annotations

import os
from typing import Any

from clonos import Job, codecs, nats

URL = os.environ.get("NATS_URL", "nats://localhost:4222")
STEP_MINUTES = 5


def grown(_train: str, published: int | None, departure: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
    """Remember the delay that was published last, and give the departure if it is exceeded by a step."""
    last = published or 0
    if departure["delay"] < last + STEP_MINUTES:
        return last, None
    return departure["delay"], departure


job = Job("delays")
departures = job.source(nats.source("DEPARTURES", url=URL, decode=codecs.json()), name="departures")
grown_delays = departures.key_by("train").stateful_map(grown, name="grown")
delays = grown_delays.filter(lambda departure: departure is not None, name="delays")
delays.sink(nats.sink(lambda departure: f"delays.{departure['train']}", url=URL, stream="DELAYS"), name="out")
