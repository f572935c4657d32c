"""Slots as child processes: started quickly, their death reported at once, none left behind."""

import os
import queue
import select
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import cloudpickle
import psutil
import pytest

from clonos.io.process.processes import ProcessSlots
from clonos.io.process.slot_provider import SlotEnded
from tests.harnesses.slot_ends import SlotEnds
from tests.speed import scaled

pytestmark = pytest.mark.processes

LIMIT_S = scaled(20.0)
HASH_SEED = "4711"


def _note(folder: Path, waits: bool) -> bytes:
    """A birth that writes who it is into `folder`, then ends or waits for its end."""

    def live(domain: str) -> None:
        here = folder / f"{domain}.{os.getpid()}"
        new = folder / f"new-{os.getpid()}"
        new.write_text(f"{os.environ['PYTHONHASHSEED']} {hash('clonos')}", "utf-8")
        os.rename(new, here)
        os.mkfifo(folder / f"fifo-{os.getpid()}")
        while waits:
            signal.pause()

    return bytes(cloudpickle.dumps(live))


def _born(provider: ProcessSlots, count: int) -> dict[int, int]:
    """Processes of the live orders, once there are ``count``."""
    barrier: queue.Queue[None] = queue.Queue()
    while len(provider.pids()) < count:
        with pytest.raises(queue.Empty):
            barrier.get(timeout=0.01)
    return provider.pids()


def _notes(folder: Path, count: int) -> list[Path]:
    """The files that slots of domains wrote about themselves, once there are ``count``."""
    barrier: queue.Queue[None] = queue.Queue()
    while len(found := list(folder.glob("domain-*"))) < count:
        with pytest.raises(queue.Empty):
            barrier.get(timeout=0.01)
    return found


@pytest.fixture
def ends() -> SlotEnds:
    return SlotEnds(LIMIT_S)


def test_a_slot_whose_function_returns_is_reported_as_ended_by_itself(ends: SlotEnds, tmp_path: Path) -> None:
    with closing(ProcessSlots(ends, HASH_SEED)) as provider:
        order = provider.order(_note(tmp_path, waits=False))
        assert ends.next() == SlotEnded(order, "")
    assert [file.name.split(".")[0] for file in tmp_path.glob("process-*")] == [f"process-{order}"]


def test_all_slots_have_the_same_hash_seed(ends: SlotEnds, tmp_path: Path) -> None:
    with closing(ProcessSlots(ends, HASH_SEED)) as provider:
        for _ in range(3):
            provider.order(_note(tmp_path, waits=False))
        for _ in range(3):
            ends.next()
    texts = {file.read_text("utf-8") for file in tmp_path.glob("process-*")}
    assert len(texts) == 1
    assert texts.pop().startswith(f"{HASH_SEED} ")


def test_a_killed_slot_is_reported_and_the_others_live_on(ends: SlotEnds, tmp_path: Path) -> None:
    with closing(ProcessSlots(ends, HASH_SEED)) as provider:
        orders = [provider.order(_note(tmp_path, waits=True)) for _ in range(3)]
        pids = _born(provider, 3)
        os.kill(pids[orders[1]], signal.SIGKILL)
        assert ends.next() == SlotEnded(orders[1], "it was ended by SIGKILL")
        assert provider.pids() == {order: pids[order] for order in (orders[0], orders[2])}
    assert {ends.next().order, ends.next().order} == {orders[0], orders[2]}


def test_a_slot_that_raises_is_reported_with_its_exit_code(
    ends: SlotEnds, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(domain: str) -> None:
        raise ValueError(f"no service in {domain}")

    with closing(ProcessSlots(ends, HASH_SEED, output=tmp_path / "output.txt")) as provider:
        order = provider.order(bytes(cloudpickle.dumps(fail)))
        assert ends.next() == SlotEnded(order, "it ended with exit code 1")
    assert f"no service in process-{order}" in (tmp_path / "output.txt").read_text("utf-8")
    assert capfd.readouterr() == ("", "")


def test_a_killed_domain_is_filled_again(ends: SlotEnds, tmp_path: Path) -> None:
    with closing(ProcessSlots(ends, HASH_SEED, domains=2)) as provider:
        orders = [provider.order(_note(tmp_path, waits=True)) for _ in range(4)]
        _notes(tmp_path, 4)  # a slot that is killed earlier leaves none
        pids = _born(provider, 4)
        for order in (orders[0], orders[2]):
            os.kill(pids[order], signal.SIGKILL)
        assert {ends.next().order, ends.next().order} == {orders[0], orders[2]}
        orders += [provider.order(_note(tmp_path, waits=True)) for _ in range(2)]
        living = _born(provider, 4)
        domain_of = {int(file.suffix[1:]): file.stem for file in _notes(tmp_path, 6)}
        assert sorted(domain_of[pid] for pid in living.values()) == ["domain-0", "domain-0", "domain-1", "domain-1"]


def test_a_domain_to_be_avoided_gets_no_slot(ends: SlotEnds, tmp_path: Path) -> None:
    with closing(ProcessSlots(ends, HASH_SEED, domains=2)) as provider:
        for _ in range(3):
            provider.order(_note(tmp_path, waits=False), avoid_domains=("domain-0",))
        assert {ends.next().reason for _ in range(3)} == {""}
    assert {file.name.split(".")[0] for file in tmp_path.glob("domain-*")} == {"domain-1"}


def test_when_the_fork_server_is_killed_its_slots_end_too(ends: SlotEnds, tmp_path: Path) -> None:
    with closing(ProcessSlots(ends, HASH_SEED)) as provider:
        order = provider.order(_note(tmp_path, waits=True))
        (pid,) = _born(provider, 1).values()
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
        assert ends.next() == SlotEnded(order, "the fork server of slots has ended: it was ended by SIGKILL")
        _await_end(pid)


def test_each_death_of_the_fork_server_is_followed_by_a_new_one_and_counted(ends: SlotEnds, tmp_path: Path) -> None:
    with closing(ProcessSlots(ends, HASH_SEED)) as provider:
        for often in ("has ended", "keeps ending (2 times so far)", "keeps ending (3 times so far)"):
            order = provider.order(_note(tmp_path, waits=True))
            (pid,) = _born(provider, 1).values()
            os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
            assert ends.next() == SlotEnded(order, f"the fork server of slots {often}: it was ended by SIGKILL")


def test_modules_named_as_warm_are_already_imported_when_a_slot_starts(ends: SlotEnds, tmp_path: Path) -> None:
    def live(domain: str) -> None:
        sys.exit(7 if "colorsys" in sys.modules else 8)

    live.__module__ = "__main__"
    with closing(ProcessSlots(ends, HASH_SEED, warm_modules=("colorsys",))) as provider:
        provider.order(_by_value(live))
        assert ends.next().reason == "it ended with exit code 7"


def test_modules_of_the_job_are_imported_by_each_fork_server_before_a_slot_starts(
    ends: SlotEnds, tmp_path: Path
) -> None:
    def live(domain: str) -> None:
        sys.exit(7 if "colorsys" in sys.modules else 8)

    live.__module__ = "__main__"
    with closing(ProcessSlots(ends, HASH_SEED, job_modules=("colorsys",))) as provider:
        provider.order(_by_value(live))
        assert ends.next().reason == "it ended with exit code 7"
        order = provider.order(_note(tmp_path, waits=True))
        (pid,) = _born(provider, 1).values()
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
        assert ends.next().order == order
        provider.order(_by_value(live))
        assert ends.next().reason == "it ended with exit code 7"


def _await_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    assert poller.poll(LIMIT_S * 1000)
    os.close(descriptor)


def _by_value(function: Callable[[str], None]) -> bytes:
    return bytes(cloudpickle.dumps(function))
