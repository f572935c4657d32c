"""Slots on Spark executors: where they start, how their deaths are reported, what is refused."""

import os
import signal
from contextlib import closing
from pathlib import Path
from threading import Event

import cloudpickle
import pytest
from pyspark import SparkContext

from clonos.core.model.errors import JobError
from clonos.io.process.slot_provider import SlotEnded
from clonos.spark.session import OwnContext, context_of
from clonos.spark.slots import SparkSlots
from tests.harnesses.slot_ends import SlotEnds
from tests.spark.conftest import HASH_SEED
from tests.speed import scaled

pytestmark = [pytest.mark.spark, pytest.mark.keeps_sockets]

LIMIT_S = scaled(60.0)
CORES = 8
"""Cores of the executors of the session."""


@pytest.fixture
def ends() -> SlotEnds:
    return SlotEnds(LIMIT_S)


def _launch_spec(pipe: Path, waits: bool) -> bytes:
    """A slot that writes a line about itself into a named pipe, then returns or waits for its end."""

    def live(domain: str) -> None:
        with open(pipe, "w", encoding="utf-8") as lines:
            lines.write(f"{domain} {os.getpid()} {os.environ['PYTHONHASHSEED']}\n")
        while waits:
            signal.pause()

    return bytes(cloudpickle.dumps(live))


def _lines(pipe: Path) -> list[str]:
    """The next line of the pipe, in words."""
    with open(pipe, encoding="utf-8") as lines:
        return lines.readline().split()


@pytest.fixture
def pipes(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"pipe-{index}" for index in range(3)]
    for pipe in found:
        os.mkfifo(pipe)
    return found


def test_a_killed_slot_is_reported_and_the_others_live_on(
    context: SparkContext, ends: SlotEnds, pipes: list[Path]
) -> None:
    with closing(SparkSlots(context, ends)) as provider:
        orders = [provider.order(_launch_spec(pipe, waits=True)) for pipe in pipes]
        output = [_lines(pipe) for pipe in pipes]
        assert {words[2] for words in output} == {HASH_SEED}
        assert all(words[0].startswith("executor-") for words in output)
        os.kill(int(output[1][1]), signal.SIGKILL)
        ended = ends.next()
        assert ended.order == orders[1]
        assert ended.reason
        again = provider.order(_launch_spec(pipes[1], waits=True))
        assert _lines(pipes[1])[1] not in [words[1] for words in output]
        assert ends.queue.empty()
    assert {ends.next().order for _ in range(3)} == {orders[0], orders[2], again}


def test_a_slot_whose_function_returns_is_reported_as_ended_by_itself(
    context: SparkContext, ends: SlotEnds, pipes: list[Path]
) -> None:
    with closing(SparkSlots(context, ends)) as provider:
        order = provider.order(_launch_spec(pipes[0], waits=False))
        _lines(pipes[0])
        assert ends.next() == SlotEnded(order, "")


def test_a_slot_that_raises_is_reported_with_its_traceback(context: SparkContext, ends: SlotEnds) -> None:
    def fail(domain: str) -> None:
        raise ValueError("no service at the start")

    with closing(SparkSlots(context, ends)) as provider:
        provider.order(bytes(cloudpickle.dumps(fail)))
        assert ends.next().reason.endswith("ValueError: no service at the start")


def test_a_second_context_in_one_process_is_refused(context: SparkContext) -> None:
    with pytest.raises(JobError, match=r"spark=session"):
        OwnContext.start("another", "local[1]", HASH_SEED)


def test_the_users_own_context_is_used_unchanged(context: SparkContext) -> None:
    assert context_of(context) is context


def test_an_object_that_is_not_a_session_is_refused() -> None:
    with pytest.raises(JobError, match="takes a SparkSession"):
        context_of("local[2]")


def test_a_spark_connect_session_is_refused() -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(JobError, match="Spark Connect"):
        context_of(connect())


def test_an_order_that_waits_for_a_core_is_withdrawn_and_never_begins(
    context: SparkContext, ends: SlotEnds, tmp_path: Path
) -> None:
    pipes = [tmp_path / f"pipe {number}" for number in range(CORES)]
    with closing(SparkSlots(context, ends)) as provider:
        for pipe in pipes:
            os.mkfifo(pipe)
            provider.order(_launch_spec(pipe, waits=True))
        pids = [int(_lines(pipe)[1]) for pipe in pipes]
        waiting = provider.order(_launch_spec(tmp_path / "never", waits=True))
        for _ in range(int(LIMIT_S * 50)):
            if provider.withdraw(waiting):
                break
            Event().wait(0.02)
        assert ends.next() == SlotEnded(waiting, "")
        assert not provider.withdraw(waiting)
        os.kill(pids[0], signal.SIGKILL)
        assert ends.next().order != waiting
    assert not (tmp_path / "never").exists()
