"""Raise an alert when a sensor is too hot three times in a row.

Gives one alert per streak. The rule depends on the order of each sensor's readings: they are in one file, in order, and
there are only keyed edges between the file and the rule, so their order is kept.

    clonos run examples/sensor_alerts.py
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from clonos import Context, Job, ValueState, files, stdout

READINGS = Path(__file__).with_name("data") / "readings.jsonl"


@dataclass
class Reading:
    """Line of the file, by whose fields a type checker checks the code below."""

    sensor: str
    number: int
    celsius: float


class ThreeInARow:
    """Emits the third reading in a row above a limit."""

    streak = ValueState("streak", default=0)

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def process(self, reading: Reading, context: Context[str, Reading]) -> None:
        streak = context.state(self.streak)
        streak.value = streak.value + 1 if reading.celsius > self.limit else 0
        if streak.value == 3:
            context.emit(reading)


job = Job("sensor_alerts", parallelism=2, checkpoint_every="1s")
readings = job.source(files.jsonl(READINGS, schema=Reading), name="readings").key_by(lambda reading: reading.sensor)
readings.process(ThreeInARow(80.0), name="three_in_a_row").sink(stdout())
