"""Fork server of slot processes: it has all modules imported, so a slot is one fork and starts in milliseconds.

Run as ``python -m clonos.io.process.fork_server EVENTS_FD MODULE...``. The driver writes orders to its standard input,
and reads ``started ORDER PID`` and ``ended ORDER CODE`` lines from EVENTS_FD. The server starts no thread, because a
forking process should have only one; those of the libraries that it imports are idle, and the libraries expect forks.
When its input ends, because the driver has ended, it kills all slots and exits; or it waits for their end, if they may
be taken over by the next driver.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import struct
import sys
import traceback
from collections.abc import Iterable
from typing import Final

import cloudpickle

HEADER = struct.Struct("<III")
"""Head of an order: its number, and the lengths of its domain (UTF-8) and of its launch spec, which follow."""

IMPORTS: Final = 0xFFFFFFFF
"""Number of an order that forks nothing: it has the names of further modules in place of a launch spec."""

KILL: Final = 0xFFFFFFFD
"""Number of an order that forks nothing: it ends all slots, which may outlive their driver (``PLACE``)."""

PLACE: Final = 0xFFFFFFFE
"""Number of an order that forks nothing: it has the place of a job (``packed_place``) in place of a launch spec.
From then on slots outlive their driver, because the next one may take them over."""

INPUT_FD = 0

NOT_IN_SLOTS: Final = frozenset({"Handle"})
"""Public names that only drivers use. Importing what is behind them would take a quarter of the start."""


def main() -> None:
    """Serves orders until the input ends."""
    gc.disable()  # it takes a tenth of the imports to look at modules, which stay
    events_fd = int(sys.argv[1])
    os.set_inheritable(events_fd, False)
    warm_up(sys.argv[2:])
    wakeup_read_fd, wakeup_write_fd = os.pipe()
    os.set_blocking(wakeup_write_fd, False)
    os.set_blocking(wakeup_read_fd, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # for slots: they handle it while they run, and inherit this before
    signal.set_wakeup_fd(wakeup_write_fd)
    fork_server = ForkServer(events_fd)
    poller = select.poll()
    poller.register(INPUT_FD, select.POLLIN)
    poller.register(wakeup_read_fd, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poller.poll()]
        if wakeup_read_fd in ready:
            os.read(wakeup_read_fd, 4096)
            fork_server.reap()
        if INPUT_FD in ready and not fork_server.serve():
            if fork_server.outlives:
                fork_server.await_all()
            else:
                fork_server.kill_all()
            sys.stderr.flush()
            os._exit(0)  # taking down all modules would take 50 ms


def warm_up(modules: Iterable[str]) -> None:
    """Imports modules, including what they load lazily.

    Without it, each slot repeats these imports in the middle of a recovery, which takes 0.2 s of processor time.
    """
    for name in modules:
        module = importlib.import_module(name)
        for offered in getattr(module, "__all__", ()):
            if offered not in NOT_IN_SLOTS:
                getattr(module, offered)


def import_for_job(modules: Iterable[str]) -> None:
    """Imports modules that only some jobs need. One that cannot be imported is left to the slots, which report it."""
    try:
        warm_up(modules)
    except Exception as error:  # noqa: BLE001  modules of other libraries may raise anything
        sys.stderr.write(f"the fork server of slots cannot import {' '.join(modules)}: {error!r}\n")


def packed_place(folder: str, output: str, path: Iterable[str]) -> bytes:
    """Returns the body of a ``PLACE`` order. ``folder``: working folder of the slots; ``output``: file to which their
    standard output and error are appended; ``path``: import path."""
    return b"\0".join(os.fsencode(each) for each in (folder, output, *path))


def _move_to(place: bytes) -> None:
    """Gives this process, and so its slots, what a fork server inherits that is started for a job."""
    folder, output, *path = (os.fsdecode(each) for each in place.split(b"\0"))
    os.chdir(folder)
    opened = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(opened, descriptor)
    os.close(opened)
    sys.path[:] = path
    os.environ["PYTHONPATH"] = os.pathsep.join(path)


class ForkServer:
    """Running children, with the orders that they serve."""

    def __init__(self, events_fd: int) -> None:
        self.events_fd = events_fd
        self.order_of_pid: dict[int, int] = {}
        self.outlives = False  # slots go on when the driver has ended, and wait for the next one

    def serve(self) -> bool:
        """Reads an order: forks a slot, imports modules, or takes a place. Returns False when the driver has ended."""
        header = _read_exactly(HEADER.size)
        if header is None:
            return False
        order, domain_length, spec_length = HEADER.unpack(header)
        body = _read_exactly(domain_length + spec_length)
        if body is None:
            return False
        if order == IMPORTS:
            import_for_job(body.decode("utf-8").split())
            return True
        if order == PLACE:
            _move_to(body)
            self.outlives = True
            return True
        if order == KILL:
            self.kill_all()
            self.order_of_pid.clear()
            return True
        gc.freeze()  # else the garbage collector of the child would touch, and so copy, these pages
        pid = os.fork()
        if pid == 0:
            gc.enable()
            _run_child(body[:domain_length].decode("utf-8"), body[domain_length:], self.events_fd)
        self.order_of_pid[pid] = order
        self._report(f"started {order} {pid}\n")
        return True

    def reap(self) -> None:
        """Reports every child that has ended, because one SIGCHLD may stand for several children."""
        while self.order_of_pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._report(f"ended {self.order_of_pid.pop(pid)} {os.waitstatus_to_exitcode(status)}\n")

    def await_all(self) -> None:
        """Waits for the end of every child: they end themselves when no driver comes."""
        while self.order_of_pid:
            self.order_of_pid.pop(os.wait()[0], None)

    def kill_all(self) -> None:
        """Kills every child and reports its end."""
        for pid in self.order_of_pid:
            os.kill(pid, signal.SIGKILL)
        for pid, order in self.order_of_pid.items():
            _, status = os.waitpid(pid, 0)
            self._report(f"ended {order} {os.waitstatus_to_exitcode(status)}\n")

    def _report(self, line: str) -> None:
        try:
            os.write(self.events_fd, line.encode("ascii"))
        except BrokenPipeError:  # the driver has ended; the end of the input will end this process
            return


def _read_exactly(count: int) -> bytes | None:
    """Reads ``count`` bytes of the input. Returns None when the input ends before."""
    parts: list[bytes] = []
    while count:
        part = os.read(INPUT_FD, count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _run_child(domain: str, launch_spec: bytes, events_fd: int) -> None:
    """Runs the slot in the child and exits. Never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(events_fd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, INPUT_FD)
        os.close(nothing)
        cloudpickle.loads(launch_spec)(domain)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 the process ends here, and the exit code and the log say so
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


if __name__ == "__main__":
    main()
