"""Injects faults into real processes and ends them: signals, disks, the service, user code, the network."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from clonos.io.process.fault_points import FaultPoint
from clonos.status import SlotState, Status
from clonos_chaos.attacks.attackers import Attack
from clonos_chaos.real.clock_shim import ClockShim
from clonos_chaos.real.exhaustion import exhaust
from clonos_chaos.real.fault_point_server import FaultPointServer
from clonos_chaos.real.fault_triggers import PATIENCE_S
from clonos_chaos.real.network_namespaces import Hosts
from clonos_chaos.real.relay import Relay
from clonos_chaos.real.toxics import Toxiproxy
from clonos_chaos.real.volumes import Volumes
from clonos_chaos.scenario.scenario import NETWORK, SERVICE, FaultKind, FaultSpec, Pattern
from clonos_chaos.scenario.scenario_service import ServiceProcess

EXECUTOR_CLASS: Final = "CoarseGrainedExecutorBackend"
FULL_DEVICE: Final = Path("/dev/full")
PATIENCE_OF_ATTACKS_S: Final = 300.0
"""Longer than for other faults: the process of an attack has a low priority and starts late on a busy machine."""

SEGMENTS_AHEAD: Final = 500
"""Names of spill files that are blocked in advance while the disk is full."""

WRITING_POINTS: Final = (FaultPoint.SPILLING, FaultPoint.SNAPSHOT_BEGUN, FaultPoint.METADATA_BEGUN)


@dataclass(slots=True)
class Tools:
    """Tools for fault injection. ``folder``: of the run. ``local_root``: of the local folders of its processes."""

    folder: Path
    local_root: Path
    service: ServiceProcess
    fault_point_server: FaultPointServer | None = None
    clock: ClockShim | None = None
    hosts: Hosts | None = None
    toxiproxy: Toxiproxy | None = None
    relay: Relay | None = None
    volumes: Volumes | None = None
    channels: list[tuple[int, int | None]] = field(default_factory=list)  # once known: tasks at both ends

    @property
    def loot(self) -> Path:
        """Returns the folder where the slots of an attacked job leave their keys."""
        return self.folder / "loot"

    def close(self) -> None:
        """Closes all tools."""
        if self.fault_point_server is not None:
            self.fault_point_server.close()
        self.service.close()
        if self.toxiproxy is not None:
            self.toxiproxy.close()
        if self.relay is not None:
            self.relay.close()
        if self.volumes is not None:
            self.volumes.close()

    def complaints(self, words: Collection[str]) -> int:
        """Returns how many lines of the log of driver and slots have one of these words."""
        lines = (self.folder / "driver.log").read_text("utf-8", "replace").splitlines()
        return sum(any(word in line for word in words) for line in lines)


@dataclass(frozen=True, slots=True)
class Lasting:
    """Handle of an active fault: how to end it, and how to renew it meanwhile.

    ``effect_count``: number of its effects so far; ``counts`` names them. A fault without effects has tested nothing;
    it lasts up to ``patience_s`` longer. ``failure``: why it will have none any more; "" while it may.
    """

    end: Callable[[], None]
    renew: Callable[[], None] = lambda: None
    detail: str = ""
    counts: str = ""
    effect_count: Callable[[], int] = lambda: 0
    detail_at_end: Callable[[], str] = lambda: ""  # details, once it has ended
    patience_s: float = PATIENCE_S
    failure: Callable[[], str] = lambda: ""


def inject(
    fault: FaultSpec, status: Status, tasks: Collection[str], others: Collection[int], tools: Tools, driver_pid: int
) -> Lasting | None:
    """Injects a fault into the processes of tasks and the slots ``others``; returns a handle if it has a duration."""
    slots = _slots_of(status, tasks, others)
    pids = [slot.pid for slot in slots]
    everybody = [*pids, driver_pid] if fault.pattern in (Pattern.DRIVER, Pattern.ALL) else pids
    match fault.kind:
        case FaultKind.KILL_WORKER:
            _signal(pids, signal.SIGKILL)
            return None
        case FaultKind.KILL_DOMAIN:
            _kill_domains(status, {slot.domain for slot in slots})
            return None
        case FaultKind.PAUSE:
            _signal(pids, signal.SIGSTOP)
            return Lasting(lambda: _signal(pids, signal.SIGCONT))
        case FaultKind.USER_ERROR:
            (tools.folder / f"raise-{fault.victim}").write_text("again" if fault.again else "once", "utf-8")
            return None
        case FaultKind.CLOCK_STEP:
            clock = tools.clock
            assert clock is not None, "a scenario that sets the clock has one to set"
            clock.set(fault.step_ms)
            return Lasting(lambda: clock.set(0), detail=f"by {fault.step_ms} ms")
        case FaultKind.PARTITION:
            hosts = tools.hosts
            assert hosts is not None, "a scenario with a partition has hosts"
            return Lasting(hosts.heal, detail=f"host {', '.join(hosts.cut(pids))}")
        case FaultKind.ATTACK:
            return _attack(fault, status, tools, driver_pid)
        case FaultKind.DISK_FULL:
            disk = _FullDisk(tools.local_root, [slot.slot for slot in slots])
            return Lasting(disk.free, disk.fill, counts="writes that the full disk refused", effect_count=disk.refused)
        case FaultKind.DISK_FAILING:
            return _limit_files(everybody)
        case FaultKind.DISK_SLOW:
            fault_point_server = tools.fault_point_server
            assert fault_point_server is not None, "a scenario with a slow disk arms the points"
            fault_point_server.slow(WRITING_POINTS, everybody, fault.latency_ms / 1000)
            return Lasting(lambda: fault_point_server.slow(WRITING_POINTS, (), 0.0))
        case FaultKind.VOLUME_FULL | FaultKind.FILE_TABLE_FULL | FaultKind.MEMORY_LIMIT:
            end, renew, refused = exhaust(fault, everybody, tools.volumes, tools.complaints)
            return Lasting(end, renew, counts="refusals", effect_count=refused)
    if fault.kind in SERVICE:
        return _fail_service(fault, tools.service)
    return _inject_network_fault(fault, slots, tools)


def _attack(fault: FaultSpec, status: Status, tools: Tools, driver_pid: int) -> Lasting:
    attack = Attack(fault, status, driver_pid, tools.channels, tools.loot, tools.folder)
    counts = f"attacks with each of {', '.join(attack.weapons)}"
    return Lasting(
        attack.end,
        detail="of attacks",
        counts=counts,
        effect_count=attack.effect_count,
        detail_at_end=attack.detail_at_end,
        patience_s=PATIENCE_OF_ATTACKS_S,
        failure=attack.failure,
    )


def _fail_service(fault: FaultSpec, service: ServiceProcess) -> Lasting:
    word = fault.kind.removeprefix("service_")
    late = f" {fault.latency_ms}" if fault.kind is FaultKind.SERVICE_SLOW else ""
    service.command(f"{word}{late} {fault.victim}".rstrip())
    return Lasting(lambda: service.command(f"answer {fault.victim}".rstrip()))


def _inject_network_fault(fault: FaultSpec, slots: Collection[SlotState], tools: Tools) -> Lasting:
    pids, numbers = [slot.pid for slot in slots], [slot.slot for slot in slots]
    if fault.kind is FaultKind.CORRUPT:
        relay = tools.relay
        assert relay is not None, "a scenario with corruption has a relay"
        before = relay.flipped
        relay.corrupt(pids, numbers, fault.every_bytes)
        return Lasting(relay.heal, counts="bits flipped", effect_count=lambda: relay.flipped - before)
    assert fault.kind in NETWORK, fault.kind
    toxiproxy = tools.toxiproxy
    assert toxiproxy is not None, "a scenario with network faults has Toxiproxy"
    proxies = toxiproxy.begin(fault, pids, numbers)
    detail, counts = f"{proxies} connections", f"connections with {fault.kind}"
    return Lasting(
        lambda: toxiproxy.end(fault, pids, numbers), detail=detail, counts=counts, effect_count=lambda: proxies
    )


def _limit_files(pids: Collection[int]) -> Lasting:
    """Limits the file size of these processes to 0: every write to a file fails with EFBIG."""

    def limit(is_none: bool) -> None:
        for pid in pids:
            try:
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0 if is_none else hard, hard))
            except ProcessLookupError:  # it has died meanwhile
                continue

    limit(True)
    return Lasting(lambda: limit(False))


def _slots_of(status: Status, tasks: Collection[str], others: Collection[int]) -> list[SlotState]:
    wanted = {task.slot for task in status.tasks if task.name in tasks} | set(others)
    return [slot for slot in status.slots if slot.slot in wanted]


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it has died meanwhile
            continue


def _kill_domains(status: Status, domains: Collection[str]) -> None:
    """Kills all processes of these domains: on Spark the executor, whose workers die with it."""
    pids: set[int] = set()
    for slot in status.slots:
        if slot.domain in domains:
            pids.add(_executor_of(slot.pid) or slot.pid)
    _signal(sorted(pids), signal.SIGKILL)


def _executor_of(pid: int) -> int:
    """Returns the process id of the executor above a slot's process; 0: none."""
    try:
        for ancestor in psutil.Process(pid).parents():
            if any(EXECUTOR_CLASS in word for word in ancestor.cmdline()):
                return int(ancestor.pid)
    except psutil.Error:  # it has died meanwhile
        pass
    return 0


class _FullDisk:
    """Full disk for spill: the files that a slot spills to link to a full device, so that writes fail with ENOSPC."""

    def __init__(self, local_root: Path, slots: Collection[int]) -> None:
        folders = [local_root / f"{slot:016x}" for slot in slots]
        self._links: dict[Path, set[str]] = {folder / "spill": set() for folder in folders if folder.is_dir()}
        self._refused = 0
        self.fill()

    def fill(self) -> None:
        """Restores the links, because a slot removes a file that it could not write."""
        for spill, links in self._links.items():
            try:
                spill.mkdir(mode=0o700, exist_ok=True)
                self._fill(spill, links)
            except OSError:  # the slot was faster, or is gone
                continue

    def _fill(self, spill: Path, links: set[str]) -> None:
        there = {path.name: path.is_symlink() for path in spill.iterdir()}
        self._refused += len(links - there.keys())
        links.intersection_update(there)
        written = [int(name.partition(".")[0]) for name, is_link in there.items() if not is_link]
        first = max(written, default=-1) + 1
        for number in range(first, first + SEGMENTS_AHEAD):
            name = f"{number:08d}.segment"
            if name not in there:
                (spill / name).symlink_to(FULL_DEVICE)
                links.add(name)

    def refused(self) -> int:
        """Returns the number of segments that could not be written."""
        return self._refused

    def free(self) -> None:
        """Frees the disk."""
        self.fill()
        for spill in self._links:
            for link in spill.glob("*.segment"):
                if link.is_symlink():
                    link.unlink(missing_ok=True)
