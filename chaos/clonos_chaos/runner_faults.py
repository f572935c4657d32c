"""Puts faults on real processes and takes them off again: signals, a full disk, the service, the network."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from clonos.io.local_folder import default_root
from clonos.status import SlotState, Status
from clonos_chaos.relay import Relay
from clonos_chaos.scenario import NETWORK, SERVICE, Fault, Kind
from clonos_chaos.scenario_service import ServiceProcess
from clonos_chaos.toxics import Toxiproxy

EXECUTOR_CLASS: Final = "CoarseGrainedExecutorBackend"
FULL_DEVICE: Final = Path("/dev/full")
SEGMENTS_AHEAD: Final = 500
"""Files that a slot may spill to while the disk is full."""

_SERVICE_WORDS: Final = {Kind.SERVICE_ERROR: "error", Kind.SERVICE_HANG: "hang", Kind.SERVICE_DOWN: "down"}


@dataclass(slots=True)
class Tools:
    """What faults are made with."""

    service: ServiceProcess
    toxiproxy: Toxiproxy | None = None
    relay: Relay | None = None

    def close(self) -> None:
        """Ends all of them."""
        self.service.close()
        if self.toxiproxy is not None:
            self.toxiproxy.close()
        if self.relay is not None:
            self.relay.close()


@dataclass(frozen=True, slots=True)
class Lasting:
    """How to end a fault that was put on, and what to do meanwhile."""

    end: Callable[[], None]
    renew: Callable[[], None] = lambda: None
    detail: str = ""


def strike(
    fault: Fault, status: Status, tasks: Collection[str], others: Collection[int], tools: Tools
) -> Lasting | None:
    """Puts a fault on the processes of tasks and on the slots ``others``; answers how to end one that lasts."""
    slots = _slots_of(status, tasks, others)
    pids = [slot.pid for slot in slots]
    if fault.kind is Kind.KILL_WORKER:
        _signal(pids, signal.SIGKILL)
        return None
    if fault.kind is Kind.KILL_DOMAIN:
        _kill_domains(status, {slot.domain for slot in slots})
        return None
    if fault.kind is Kind.PAUSE:
        _signal(pids, signal.SIGSTOP)
        return Lasting(lambda: _signal(pids, signal.SIGCONT))
    if fault.kind is Kind.DISK_FULL:
        return _fill_disk([slot.slot for slot in slots])
    if fault.kind in SERVICE:
        tools.service.tell(_SERVICE_WORDS[fault.kind])
        return Lasting(lambda: tools.service.tell("answer"))
    numbers = [slot.slot for slot in slots]
    if fault.kind is Kind.CORRUPT:
        relay = tools.relay
        assert relay is not None, "a scenario with corruption has a relay"
        relay.corrupt(pids, numbers, fault.every_bytes)
        return Lasting(relay.heal)
    assert fault.kind in NETWORK, fault.kind
    toxiproxy = tools.toxiproxy
    assert toxiproxy is not None, "a scenario with network faults has Toxiproxy"
    proxies = toxiproxy.begin(fault, pids, numbers)
    return Lasting(lambda: toxiproxy.end(fault, pids, numbers), detail=f"{proxies} connections")


def _slots_of(status: Status, tasks: Collection[str], others: Collection[int]) -> list[SlotState]:
    wanted = {task.slot for task in status.tasks if task.name in tasks} | set(others)
    return [slot for slot in status.slots if slot.slot in wanted]


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it has died of something else meanwhile
            continue


def _kill_domains(status: Status, domains: Collection[str]) -> None:
    """All that dies together; on Spark the executor, whose workers die with it."""
    pids: set[int] = set()
    for slot in status.slots:
        if slot.domain in domains:
            pids.add(_executor_of(slot.pid) or slot.pid)
    _signal(sorted(pids), signal.SIGKILL)


def _executor_of(pid: int) -> int:
    """The executor among the ancestors of a slot's process; 0: none."""
    try:
        for ancestor in psutil.Process(pid).parents():
            if any(EXECUTOR_CLASS in word for word in ancestor.cmdline()):
                return int(ancestor.pid)
    except psutil.Error:  # it has died meanwhile
        pass
    return 0


def _fill_disk(slots: Collection[int]) -> Lasting:
    """Every file that a slot would spill to leads to a device that is full: writing fails with ENOSPC."""
    folders = [folder for slot in slots if (folder := default_root() / f"{slot:016x}").is_dir()]

    def fill() -> None:
        for folder in folders:
            _link_segments(folder / "spill")

    fill()
    return Lasting(lambda: _free_disk(folders), fill)


def _link_segments(spill: Path) -> None:
    """Again and again: a slot removes what it could not write."""
    try:
        spill.mkdir(mode=0o700, exist_ok=True)
        there = {path.name: path.is_symlink() for path in spill.iterdir()}
        written = [int(name.partition(".")[0]) for name, is_link in there.items() if not is_link]
        first = max(written, default=-1) + 1
        for number in range(first, first + SEGMENTS_AHEAD):
            if f"{number:08d}.segment" not in there:
                (spill / f"{number:08d}.segment").symlink_to(FULL_DEVICE)
    except OSError:  # the slot was quicker, or is gone
        return


def _free_disk(folders: list[Path]) -> None:
    for folder in folders:
        for link in (folder / "spill").glob("*.segment"):
            if link.is_symlink():
                link.unlink(missing_ok=True)


def _port_of(address: Any) -> int:
    """Of an address as psutil has it; it is empty where a socket has none."""
    return int(address.port) if address else 0


def pid_of_port(status: Status, port: int) -> int:
    """The slot's process that has a connection from this port of the loopback; 0: none."""
    for slot in status.slots:
        try:
            connections = psutil.Process(slot.pid).net_connections(kind="tcp")
        except psutil.Error:
            continue
        if any(_port_of(connection.laddr) == port for connection in connections):
            return slot.pid
    return 0
