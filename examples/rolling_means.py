"""Smooth the temperature of each sensor, hour by hour, with pandas: a rolling mean, one value for every ten minutes.

The function gets the readings of a sensor and an hour as one DataFrame. They may come up to 5 minutes out of order. It
does the same again after a failure, so each row is there once.

    clonos run examples/rolling_means.py
"""

from __future__ import annotations

import pandas

from clonos import Job, Timestamps, Tumbling, files, values

NOON = 1_690_000_000 // 3_600 * 3_600
READINGS = [
    {"sensor": f"s{number % 3}", "at": NOON + 60 * number - number * 7 % 5 * 60, "celsius": 20.0 + number * number % 8}
    for number in range(240)
]


def smooth(sensor: str, frame: pandas.DataFrame) -> pandas.DataFrame:
    frame["at"] = pandas.to_datetime(frame["at"], unit="s", utc=True)
    by_time = frame.sort_values("at").set_index("at")["celsius"]
    means = by_time.rolling("30min").mean().resample("10min").last().dropna()
    return pandas.DataFrame({"sensor": sensor, "at": means.index, "celsius": means.round(3).to_numpy()})


job = Job("rolling_means", parallelism=2, checkpoint_every="1s")
(
    job.source(values(READINGS), name="readings", timestamps=Timestamps("at", out_of_order="5min"))
    .key_by("sensor")
    .window(Tumbling("1h"))
    .map_frames(smooth, name="smooth")
    .sink(files.jsonl("out/rolling_means"), name="means")
)
