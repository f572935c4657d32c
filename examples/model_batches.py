"""Score readings by a model in batches, and ask for the hall and the limit of many sensors in one question.

Gives each reading with its score, from 0 to 1, its hall and its limit; those of unknown sensors are left out. A model,
and a database too, answers for 1,000 rows almost as fast as for one. `rows=` and `within=` say how many rows the model
gets at once, and how long they wait for others. `enrich_batch` asks for many keys at once, here a CSV file.

    clonos run examples/model_batches.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from clonos import Job, files

DATA = Path(__file__).with_name("data")


def scored(readings: pl.DataFrame) -> pl.DataFrame:
    """Stands for `model.predict(readings)`."""
    above = pl.col("celsius") - 80
    return readings.with_columns(score=(1 / (1 + (-above / 5).exp())).round(3))


def sensors_of(names: list[str]) -> pl.DataFrame:
    """Gives a row for each sensor, found by its column `sensor`. In SQL it is `WHERE sensor = ANY(...)`."""
    return pl.read_csv(DATA / "sensors.csv").filter(pl.col("sensor").is_in(names))


def with_sensor(reading: dict[str, Any], sensor: dict[str, Any]) -> dict[str, Any]:
    return {**reading, **sensor}


job = Job("model_batches", checkpoint_every="1s")
readings = job.source(files.jsonl(DATA / "readings.jsonl", columns=True), name="readings")
scores = readings.map_batches(scored, rows=4096, within="200ms", name="scores")
known = scores.enrich_batch(
    sensors_of,
    on="sensor",
    keys=500,
    within="50ms",
    select=with_sensor,
    not_found="skip",
    cache="10min",
    name="sensors",
)
known.sink(files.jsonl("out/scores"), name="scored")
