"""A job whose result depends on the order of its input gives the right result with any number of tasks."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from clonos.connectors import collect, files
from clonos.job import Job

pytestmark = pytest.mark.processes

MACHINES = 40
READINGS = 15_000


def _watched(_machine: str, before: float | None, reading: dict[str, float]) -> tuple[float, bool]:
    """Alerts if a machine, all of which cool down, is warmer than before."""
    return reading["celsius"], before is not None and reading["celsius"] > before


def test_alerts_that_depend_on_the_order_are_those_of_the_file(tmp_path: Path) -> None:
    drawn = random.Random(1)
    readings = [
        {"machine": f"m{drawn.randrange(MACHINES)}", "celsius": round(drawn.gauss(60 - number / 1_000, 0.012), 4)}
        for number in range(READINGS)
    ]
    (tmp_path / "x.jsonl").write_text("".join(f"{json.dumps(reading)}\n" for reading in readings), "utf-8")
    states: dict[str, float] = {}
    expected = 0
    for reading in readings:
        machine = str(reading["machine"])
        states[machine], alert = _watched(machine, states.get(machine), reading)  # type: ignore[arg-type]
        expected += alert
    job = Job("alerts", slots="process", parallelism=4, store=tmp_path / "store")
    found = collect()
    rows = job.source(files.jsonl(tmp_path / "x.jsonl"), name="read").map(dict)
    rows.key_by("machine").stateful_map(_watched, name="watch").filter(bool).sink(found)
    job.run()
    assert len(found.rows) == expected > 10
