"""Attacks as a runner starts them: ports, numbers of connections, and the count of attacks."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec
import psutil

from clonos.status import Status
from clonos_chaos.attacks.attack_lies import AttackedJob, TaskLocation
from clonos_chaos.attacks.attacker import AttackOrders
from clonos_chaos.real.log_tail import last_line
from clonos_chaos.real.run_driver import child_environment
from clonos_chaos.scenario.scenario import FaultSpec, Weapon

FILES_FOR_WORK: Final = 300
"""File descriptors that a crowd leaves to each attacked process, so that user code can open files."""

FILES_OF_FULL_TABLE: Final = 40
"""File descriptors left to the driver while its table is full."""

WAIT_S: Final = 20.0
STACKS_S: Final = 0.5


class Attack:
    """Running attack. ``end`` ends it."""

    def __init__(
        self,
        fault: FaultSpec,
        status: Status,
        driver_pid: int,
        channels: list[tuple[int, int | None]],
        loot: Path,
        folder: Path,
    ) -> None:
        self.weapons: list[Weapon] = [fault.weapon] if fault.weapon is not Weapon.ALL else _ALL
        file = folder / f"attack-{len(list(folder.glob('attack-*.json')))}.json"
        self._counts_file = file.with_suffix(".counts")
        self._driver_files: tuple[int, tuple[int, int]] | None = None
        pids = [driver_pid, *(slot.pid for slot in status.slots if slot.pid)]
        driver_ports = _ports([driver_pid])
        orders = AttackOrders(
            weapons=self.weapons,
            seconds=fault.lasts_ms / 1_000,
            connections=fault.connections,
            at_once=_room(pids, fault.connections),
            ports=sorted({*driver_ports, *_ports(pids)}),
            driver_ports=driver_ports,
            job=AttackedJob(
                [TaskLocation(n, task.incarnation, task.slot) for n, task in enumerate(status.tasks)], channels
            ),
            loot=str(loot),
            counts=str(self._counts_file),
        )
        file.write_bytes(msgspec.json.encode(orders))
        if self.weapons == [Weapon.FULL_TABLE]:
            self._limit_files(driver_pid)
        self._log = folder / "attacker.log"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "clonos_chaos.attacks.attacker", str(file)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=child_environment(),
            )

    def _limit_files(self, pid: int) -> None:
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        highest = max(int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + FILES_OF_FULL_TABLE, before[1]))
        self._driver_files = pid, before

    def effect_count(self) -> int:
        """Returns the lowest number of attacks of any weapon; 0 while one has not had its turn."""
        return min((self.counts().get(weapon, 0) for weapon in self.weapons), default=0)

    def counts(self) -> dict[Weapon, int]:
        """Returns the number of attacks by weapon, for weapons that have had their turn."""
        if not self._counts_file.exists():
            return {}
        lines = self._counts_file.read_text("ascii").splitlines(keepends=True)
        pairs = [line.split() for line in lines if line.endswith("\n")]
        return {Weapon(weapon): int(count) for weapon, count in pairs}

    def detail_at_end(self) -> str:
        """Formats the number of attacks by weapon, and how the attacker failed."""
        found = [f"{weapon} {count:,}" for weapon, count in self.counts().items()]
        return ", ".join([*found, self.failure()] if self.failure() else found)

    def failure(self) -> str:
        """Returns how the attacker failed, with the last line of its log; "" while it runs, or once it is done."""
        return f"the attacker has failed: {last_line(self._log)}" if self._process.poll() else ""

    def end(self) -> None:
        """Ends the attacker, and restores the file limit of the driver."""
        assert self._process.stdin is not None, "it was opened as a pipe"
        if self._process.poll() is None and not self.effect_count():
            self._process.send_signal(signal.SIGUSR1)  # it writes its stacks into its log
            time.sleep(STACKS_S)
        self._process.stdin.close()
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._driver_files is not None:
            pid, before = self._driver_files
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


_ALL: Final[list[Weapon]] = [weapon for weapon in Weapon if weapon not in (Weapon.ALL, Weapon.FULL_TABLE)]
"""Weapons of ``all``. A full table is a separate attack: a driver that may open no file does too little to disturb."""


def _ports(pids: Collection[int]) -> list[int]:
    """Returns the ports at which these processes listen."""
    found = [connection for pid in pids for connection in psutil.Process(pid).net_connections("tcp")]
    return sorted({each.laddr.port for each in found if each.status == psutil.CONN_LISTEN})


def _room(pids: Collection[int], connections: int) -> int:
    """Returns the size of a crowd that leaves some files to each process."""
    rooms = [resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] - FILES_FOR_WORK for pid in pids]
    return max(len(pids), min(connections, len(pids) * min(rooms)))
