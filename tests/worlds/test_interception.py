"""Clocks and random numbers of Python in steps with ``intercept=True``: in every world a successor gets the same."""

from __future__ import annotations

import datetime
import os
import random
import secrets
import time
import uuid
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from clonos import Context, Job, ValueState, collect, values
from clonos.testing import crash_test

pytestmark = pytest.mark.worlds


def stamped(number: int) -> tuple[Any, ...]:
    began = perf_counter()
    while time.monotonic() < began:  # ends, because each reading is recorded
        pass
    return (
        *(
            number,
            time.time(),
            time.time_ns(),
            began,
            str(datetime.datetime.now()),
            str(datetime.datetime.now(datetime.UTC)),
            str(datetime.datetime.today()),
        ),
        *(str(datetime.date.today()), time.strftime("%c"), time.localtime().tm_hour, time.ctime(), time.asctime()),
        *(random.random(), random.choice("abc"), random.Random().random(), random.SystemRandom().randrange(9)),
        *(str(uuid.uuid1()), str(uuid.uuid4()), os.urandom(4), secrets.token_hex(4), secrets.choice("abc")),
        float(np.random.default_rng().random()),
    )


class Totals:
    """Adds what it draws to its state."""

    total = ValueState("total", default=0.0)

    def process(self, row: tuple[Any, ...], context: Context[None, Any]) -> None:
        total = context.state(self.total)
        total.value += random.random() + time.monotonic()
        context.emit((row, total.value))


def drawing_job(**options: Any) -> Job:
    job = Job("drawn")
    rows = job.source(values(range(60))).map(stamped, **options).rebalance()
    totals = rows.process(Totals, name="totals", **options).rebalance()
    totals.map(lambda row: row, name="received").sink(collect())
    return job


def test_a_successor_gets_the_same_times_and_draws_in_every_world() -> None:
    crash_test(lambda: drawing_job(intercept=True), seeds=range(6))
