"""``map_async`` on slot processes: calls run concurrently; a call that its process died in is repeated by its key."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from functools import cache
from pathlib import Path

import pytest

from clonos.connectors import collect, files, values
from clonos.job import Job

pytestmark = pytest.mark.processes

SIDE_BY_SIDE = 4


@cache
def _meeting() -> threading.Barrier:
    """A barrier per slot process: it opens when the given number of calls wait."""
    return threading.Barrier(SIDE_BY_SIDE, timeout=30)


def _met(number: int) -> int:
    _meeting().wait()
    return number


@pytest.mark.parametrize("ordered", [True, False])
def test_calls_run_concurrently_up_to_the_capacity(tmp_path: Path, ordered: bool) -> None:
    job = Job("meeting", slots="process", store=tmp_path / "store")
    output = collect()
    numbers = range(10 * SIDE_BY_SIDE)
    job.source(values(numbers)).map_async(_met, capacity=SIDE_BY_SIDE, ordered=ordered, name="meet").sink(output)
    job.run()
    assert (output.rows if ordered else sorted(output.rows)) == list(numbers)


async def _met_in_a_loop(number: int) -> int:
    waiting = _waiting()
    waiting.append(asyncio.Event())
    mine = waiting[-1]
    if len(waiting) == SIDE_BY_SIDE:
        for event in waiting:
            event.set()
        waiting.clear()
    await mine.wait()
    return number


@cache
def _waiting() -> list[asyncio.Event]:
    """The calls of a slot process that wait for others."""
    return []


def test_async_functions_are_awaited_side_by_side(tmp_path: Path) -> None:
    job = Job("awaiting", slots="process", store=tmp_path / "store")
    output = collect()
    numbers = range(10 * SIDE_BY_SIDE)
    awaited = job.source(values(numbers)).map_async(_met_in_a_loop, capacity=SIDE_BY_SIDE, timeout="60s")
    awaited.rebalance().map(lambda number: -number, par=3).sink(output)
    job.run()
    assert output.rows == [-number for number in numbers]


def test_a_process_that_dies_in_a_call_loses_no_record_and_the_call_keeps_its_key(tmp_path: Path) -> None:
    keys_folder = tmp_path / "told"
    keys_folder.mkdir()

    def call(number: int, idempotency_key: str) -> int:
        with (keys_folder / f"{number}").open("a", encoding="utf-8") as file:
            file.write(idempotency_key + "\n")
        if number in (7, 23) and not (keys_folder / f"died {number}").exists():
            (keys_folder / f"died {number}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number

    job = Job("telling", slots="process", checkpoint_every="100ms", store=tmp_path / "store")
    numbers = job.source(values(range(40))).map_async(call, capacity=3, name="tell")
    numbers.sink(files.jsonl(tmp_path / "output"))
    result = job.run()
    assert len(result.status.recoveries) >= 1
    assert list(files.read_committed(tmp_path / "output")) == [number * number for number in range(40)]
    keys = {path.name: path.read_text("utf-8").split() for path in keys_folder.iterdir() if "died" not in path.name}
    assert min(len(keys["7"]), len(keys["23"])) > 1
    assert all(len(set(of_number)) == 1 for of_number in keys.values())
    assert len({of_number[0] for of_number in keys.values()}) == 40
