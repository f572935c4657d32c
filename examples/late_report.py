"""Report exactly which readings are late, and by how much; pass the others on.

A window reports what is late for it, which depends on where its source ended each read. Here one task compares each
reading with the latest one before it, in the order of the file, so every run gives the same report.

    clonos run examples/late_report.py
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from clonos import Context, Job, Tag, Timestamps, ValueState, files, values

NOON = 1_690_000_200
IN_TIME = timedelta(seconds=5)
READINGS = [{"number": number, "at": NOON + number - (number * 7 % 11 if number % 3 else 0)} for number in range(120)]

Reading = dict[str, Any]
LATE = Tag[Reading]("late")


class Lateness:
    """Passes on readings in time, and reports those further behind the latest one than ``IN_TIME``."""

    latest = ValueState[datetime | None]("latest", default=None)

    def process(self, reading: Reading, context: Context[None, Reading]) -> None:
        latest, at = context.state(self.latest), context.timestamp
        assert at is not None, "the source gives timestamps"
        behind = timedelta(0) if latest.value is None else latest.value - at
        if behind <= timedelta(0):
            latest.value = at
        if behind > IN_TIME:
            context.output(LATE, {**reading, "seconds_behind": behind.total_seconds()})
        else:
            context.emit(reading)


job = Job("late_report", checkpoint_every="1s")
readings = job.source(values(READINGS), name="readings", parallelism=1, timestamps=Timestamps("at", out_of_order="10s"))
checked = readings.process(Lateness, name="lateness", parallelism=1)
checked.sink(files.jsonl("out/readings_in_time"), name="in_time")
checked.side_output(LATE).sink(files.jsonl("out/late_report"), name="late")
