"""Average the temperature of each sensor over the last 30 seconds, every 10 seconds, by the times of the readings.

Readings come up to 5 seconds out of order. Those that come even later change an average again for 20 seconds after its
window, and then go to a file of their own, so none is lost without notice.

    clonos run examples/sensor_averages.py
"""

from __future__ import annotations

from typing import Any

from clonos import Job, Sliding, Tag, Timestamps, WindowResult, files, values
from clonos.agg import count, mean

NOON = 1_690_000_200
LATE = Tag[dict[str, Any]]("late")
READINGS = [
    {"sensor": f"s{number % 3}", "at": NOON + number - number * 7 % 5, "celsius": 20.0 + number % 8}
    for number in range(120)
]


def row(window: WindowResult[str, dict[str, Any]]) -> dict[str, Any]:
    return {"sensor": window.key, "until": window.end, **window.value}


job = Job("sensor_averages", parallelism=2, checkpoint_every="1s")
readings = job.source(values(READINGS), name="readings", timestamps=Timestamps("at", out_of_order="5s"))
averages = (
    readings.key_by("sensor")
    .window(Sliding("30s", every="10s"), lateness="20s", late=LATE)
    .aggregate(celsius=mean("celsius"), readings=count(), name="average")
)
averages.map(row).sink(files.jsonl("out/sensor_averages"), name="averages")
averages.side_output(LATE).sink(files.jsonl("out/late_readings"), name="late")
