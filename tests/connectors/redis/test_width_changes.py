"""Changes of widths between Redis and Redis: streams are dealt anew, and alarms number the rows that come again."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from clonos import codecs, redis
from clonos.job import Job
from tests.connectors.redis.streams import add_stream, found, publish
from tests.connectors.servers.redis import RedisProcess
from tests.connectors.width_changes import run_at

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]

ROWS, STREAMS = 100, 5
ALARM = re.compile(r"output (\d+) to (\d+) of (\S+) had left before the rollback")


def test_alarms_number_the_entries_that_come_again_of_tasks_that_do_not_run_any_more_too(
    redis_server: RedisProcess, tmp_path: Path
) -> None:
    keys = [add_stream(redis_server, f"widths-{number}") for number in range(STREAMS)]
    target, written = add_stream(redis_server, "changed-widths"), 0

    def job() -> Job:
        job = Job("widths", slots="process", checkpoint_every="1h", store=tmp_path / "store", parallelism=4)
        source = redis.source(keys, url=redis_server.full_url, decode=codecs.json())
        rows = job.source(source, name="read").rebalance().map(lambda n: {"n": n}, name="row")
        rows.sink(redis.sink(target, url=redis_server.full_url), name="write")
        return job

    def write() -> None:
        nonlocal written
        for number, key in enumerate(keys):
            publish(redis_server, key, range(written + number, written + ROWS, STREAMS))
        written += ROWS

    def rows() -> Counter[int]:
        return Counter(json.loads(fields[b"data"])["n"] for _, fields in found(redis_server, target))

    def has_all() -> bool:
        return len(rows()) == written

    run_at(job(), ("read=4", "write=4"), write, has_all, is_aborted=False)
    run_at(job(), (), write, has_all)  # no checkpoint has its rows
    status = run_at(job(), ("read=2", "write=2"), write, has_all, is_aborted=False)
    numbered = {alarm[3]: int(alarm[2]) - int(alarm[1]) + 1 for alarm in map(ALARM.match, status.alarms) if alarm}
    assert set(numbered) == {f"row/{task}" for task in range(4)}
    again = [n for n, count in rows().items() if count > 1]
    assert sorted(again) == list(range(ROWS, 2 * ROWS))
    assert sum(numbered.values()) == len(again)
    run_at(job(), ("read=4", "write=4"), write, has_all, is_aborted=False)
    assert sorted(rows()) == list(range(written))
    assert [n for n, count in rows().items() if count > 1] == again
