"""Fit a model of each house to its last 24 readings, with NumPy, and report readings that it did not expect.

The model says what a house needs at an outdoor temperature: a line, fitted anew for each reading to the ones before it.
Readings may come up to an hour out of order. The function has no state: it does the same again after a failure, so each
report is there once.

    clonos run examples/model_per_key.py
"""

from __future__ import annotations

import numpy
import pandas

from clonos import Job, Timestamps, files, values

MIDNIGHT = 1_690_000_000 // 86_400 * 86_400
FAULTS = {("h1", 40), ("h2", 55), ("h2", 71)}
"""Hours in which a house needs 5 kW more than its model says."""


def reading(house: str, hour: int) -> dict[str, object]:
    outdoors = 5.0 + 9 * ((hour * 5) % 24) / 24
    usual = {"h0": 12.0, "h1": 9.0, "h2": 20.0}[house] - 0.5 * outdoors + (hour * 7 % 5 - 2) / 20
    kilowatts = usual + 5 * ((house, hour) in FAULTS)
    return {"house": house, "at": MIDNIGHT + 3_600 * hour, "outdoors": outdoors, "kilowatts": kilowatts}


READINGS = [reading(f"h{house}", hour ^ 1) for hour in range(96) for house in range(3)]


def unexpected(house: str, frame: pandas.DataFrame) -> pandas.DataFrame:
    """Returns the last reading with what was expected, if the difference is far more than usual; else no row."""
    *_, last = frame.index
    before, now = frame.iloc[:-1], frame.loc[[last]]
    if len(before) < 12:
        return now.iloc[:0].assign(expected=0.0)
    slope, base = numpy.polyfit(before["outdoors"], before["kilowatts"], 1)
    usual = (before["kilowatts"] - (base + slope * before["outdoors"])).std()
    now = now.assign(expected=(base + slope * now["outdoors"]).round(2))
    return now[(now["kilowatts"] - now["expected"]).abs() > 4 * usual]


job = Job("model_per_key", parallelism=2, checkpoint_every="1s")
(
    job.source(values(READINGS), name="readings", timestamps=Timestamps("at", out_of_order="1h"))
    .key_by("house")
    .last(24)
    .map_frames(unexpected, name="unexpected")
    .sink(files.jsonl("out/unexpected"), name="reports")
)
