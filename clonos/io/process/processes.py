"""Slots as child processes of the driver, without a JVM: for one machine and for tests.

A fork server with all modules imported forks them, and reports each end at once. If it ends, its slots are killed and
the next order starts another. Each slot is a failure domain of its own, or the slots share a given number of domains,
so that a whole domain can be killed as an executor would be.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from clonos.io.process.fork_server import HEADER, IMPORTS, KILL
from clonos.io.process.fork_server_process import take_or_start
from clonos.io.process.retained_slots import RetainedSlot, opened
from clonos.io.process.slot_provider import Listener, SlotEnded
from clonos.io.system.readiness import wait_readable

DOMAIN_PREFIX = "process-"
END_TIMEOUT_S = 10.0
"""Seconds that the fork server has to kill its children and exit."""


class ProcessSlots:
    """Slot provider that starts child processes. ``domains``: number of failure domains; 0 makes each slot its own.

    ``hash_seed``: PYTHONHASHSEED of all slots. ``warm_modules``: imported once, before any slot is forked;
    ``job_modules`` likewise, in a fork server that was started before the job was known, too. ``output``: file for the
    standard output of slots; None shares the driver's. One thread calls ``order`` and ``close``; the listener is called
    from another thread.
    """

    def __init__(
        self,
        listener: Listener,
        hash_seed: str,
        domains: int = 0,
        warm_modules: tuple[str, ...] = (),
        output: Path | None = None,
        job_modules: tuple[str, ...] = (),
    ) -> None:
        self._listener = listener
        self._domain_count = domains
        self._lock = threading.Lock()
        self._orders = 0
        self._adopted: dict[int, int] = {}  # descriptors of the processes of orders that were not forked here
        self._domain_of: dict[int, str] = {}  # orders whose slot runs or was requested
        self._pid_of: dict[int, int] = {}  # process ids. Invariant: only orders in _domain_of
        self._hash_seed = hash_seed
        self._warm_modules = warm_modules
        self._output = output
        self._job_modules = job_modules
        self._deaths = 0
        self._has_ended = False  # the latest fork server. Invariant: then no order of it is in _domain_of
        self._readers: list[threading.Thread] = []
        self._fork_server = self._start_fork_server()

    def order(self, launch_spec: bytes, avoid_domains: Collection[str] = ()) -> int:
        """Requests one more slot and returns the order's number. Starts a new fork server if the last one has ended.

        Raises: EnvironmentFault when none can be started."""
        with self._lock:
            if self._has_ended:
                _close_input(self._fork_server)
                self._fork_server = self._start_fork_server()
                self._has_ended = False
            number = self._orders
            self._orders += 1
            domain = self._domain_for(number, avoid_domains)
            self._domain_of[number] = domain
        encoded = domain.encode("utf-8")
        _write(self._fork_server, HEADER.pack(number, len(encoded), len(launch_spec)) + encoded + launch_spec)
        return number

    def adopt(self, slot: RetainedSlot) -> int | None:
        """Takes over a slot of an earlier driver as if it had been ordered here. Returns the order's number; None if
        the slot has ended.

        Raises: EnvironmentFault: the system does not say whether it lives.
        """
        descriptor = opened(slot)
        if descriptor is None:
            return None
        with self._lock:
            if not self._domain_count:  # domains are named after orders, and a name is never used twice
                self._orders = max(self._orders, 1 + int(slot.register.domain.removeprefix(DOMAIN_PREFIX)))
            number = self._orders
            self._orders += 1
            self._domain_of[number] = slot.register.domain
            self._adopted[number] = descriptor
        watch = threading.Thread(target=self._watch, args=(number, descriptor), name="adopted slot", daemon=True)
        self._readers.append(watch)
        watch.start()
        return number

    def _watch(self, number: int, descriptor: int) -> None:
        wait_readable(descriptor)
        with self._lock:
            del self._adopted[number]
            os.close(descriptor)
        self._end(number, "its process has ended")

    def withdraw(self, order: int) -> bool:
        """Returns False: processes start at once."""
        return False

    def close(self) -> None:
        """Ends every slot and the fork server, and waits for them."""
        with self._lock:
            for descriptor in self._adopted.values():
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        _write(self._fork_server, HEADER.pack(KILL, 0, 0))
        _close_input(self._fork_server)
        try:
            self._fork_server.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._fork_server.kill()
            self._fork_server.wait()
        for reader in self._readers:
            reader.join()

    def pids(self) -> dict[int, int]:
        """Returns the process id of the slot of each running order."""
        with self._lock:
            return dict(self._pid_of)

    def _start_fork_server(self) -> subprocess.Popen[bytes]:
        """Starts a fork server, or takes the waiting one, and starts a thread that reads its events."""
        started = take_or_start(self._hash_seed, self._warm_modules, self._output)
        reader = threading.Thread(
            target=self._read, args=(started.events_fd, started.process), name="slot processes", daemon=True
        )
        self._readers = [*(each for each in self._readers if each.is_alive()), reader]
        reader.start()
        if self._job_modules:
            names = " ".join(self._job_modules).encode("utf-8")
            _write(started.process, HEADER.pack(IMPORTS, 0, len(names)) + names)
        return started.process

    def _domain_for(self, number: int, avoid: Collection[str]) -> str:
        """Returns the domain with the fewest slots, so that a killed domain fills again; avoids ``avoid`` if
        possible."""
        if not self._domain_count:
            return f"{DOMAIN_PREFIX}{number}"
        living = Counter(self._domain_of.values())
        names = [f"domain-{index}" for index in range(self._domain_count)]
        return min(names, key=lambda name: (name in avoid, living[name]))

    def _read(self, events_fd: int, fork_server: subprocess.Popen[bytes]) -> None:
        with open(events_fd, encoding="ascii") as lines:
            for line in lines:
                event, order, value = line.split()
                if event == "started":
                    with self._lock:
                        self._pid_of[int(order)] = int(value)
                else:
                    self._end(int(order), _reason(int(value)))
        self._end_orphans(fork_server.wait())

    def _end(self, order: int, reason: str) -> None:
        with self._lock:
            self._domain_of.pop(order, None)
            self._pid_of.pop(order, None)
        self._listener(SlotEnded(order, reason))

    def _end_orphans(self, code: int) -> None:
        """Kills the remaining slots after the fork server has ended, because they would outlive it if it was killed."""
        with self._lock:
            self._has_ended = True
            self._deaths += 1
            left = [(order, self._pid_of.pop(order, None)) for order in self._domain_of]
            self._domain_of.clear()
        often = f"keeps ending ({self._deaths} times so far)" if self._deaths > 1 else "has ended"
        reason = f"the fork server of slots {often}: {_reason(code) or 'it ended with exit code 0'}"
        for order, pid in left:
            if pid is not None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self._listener(SlotEnded(order, reason))


def _write(fork_server: subprocess.Popen[bytes], order: bytes) -> None:
    assert fork_server.stdin is not None, "it was opened as a pipe"
    try:
        fork_server.stdin.write(order)
        fork_server.stdin.flush()
    except BrokenPipeError:
        pass  # the fork server has just ended: its reader reports the end of each order too


def _close_input(fork_server: subprocess.Popen[bytes]) -> None:
    assert fork_server.stdin is not None, "it was opened as a pipe"
    try:
        fork_server.stdin.close()
    except BrokenPipeError:  # it has ended already
        pass


def _reason(code: int) -> str:
    if code == 0:
        return ""
    if code > 0:
        return f"it ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it was ended by {name}"
