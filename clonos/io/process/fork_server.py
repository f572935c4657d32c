"""The process that bears slot processes: it has everything imported, so a slot is one fork and starts in milliseconds.

Run as ``python -m clonos.io.process.fork_server EVENTS_FD MODULE...``; the driver talks to it through its
standard input and reads ``born ORDER PID`` and ``ended ORDER CODE`` lines from EVENTS_FD. It has one thread, as what
forks should. When the driver is gone, its input ends: then it kills all slots and ends itself.
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

import cloudpickle

HEADER = struct.Struct("<III")
"""Of an order: its number, the lengths of its domain (UTF-8) and of its birth, which follow."""

INPUT_FD = 0


def main() -> None:
    """Serves orders until the input ends."""
    events_fd = int(sys.argv[1])
    os.set_inheritable(events_fd, False)
    warm_up(sys.argv[2:])
    wakeup_read_fd, wakeup_write_fd = os.pipe()
    os.set_blocking(wakeup_write_fd, False)
    os.set_blocking(wakeup_read_fd, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakeup_write_fd)
    gc.collect()
    gc.freeze()  # what is here now stays: the collector of a child need not touch, and so copy, its pages
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
            fork_server.kill_all()
            return


def warm_up(modules: Iterable[str]) -> None:
    """Imports modules, with all that they offer, also where they load it when it is asked for.

    The code of a job imports what its driver needs too. Each slot did that anew, in the middle of a recovery, and took
    0.2 s of a processor for it.
    """
    for name in modules:
        module = importlib.import_module(name)
        for offered in getattr(module, "__all__", ()):
            getattr(module, offered)


class ForkServer:
    """The living children and the orders that they serve."""

    def __init__(self, events_fd: int) -> None:
        self.events_fd = events_fd
        self.order_of_pid: dict[int, int] = {}

    def serve(self) -> bool:
        """Reads one order and forks its slot. False when the driver is gone."""
        header = _read_exactly(HEADER.size)
        if header is None:
            return False
        order, domain_length, birth_length = HEADER.unpack(header)
        body = _read_exactly(domain_length + birth_length)
        if body is None:
            return False
        pid = os.fork()
        if pid == 0:
            _live(body[:domain_length].decode("utf-8"), body[domain_length:], self.events_fd)
        self.order_of_pid[pid] = order
        self._tell(f"born {order} {pid}\n")
        return True

    def reap(self) -> None:
        """Takes note of every child that has ended: one signal may stand for several."""
        while self.order_of_pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._tell(f"ended {self.order_of_pid.pop(pid)} {os.waitstatus_to_exitcode(status)}\n")

    def kill_all(self) -> None:
        """Ends every child and tells of it."""
        for pid in self.order_of_pid:
            os.kill(pid, signal.SIGKILL)
        for pid, order in self.order_of_pid.items():
            _, status = os.waitpid(pid, 0)
            self._tell(f"ended {order} {os.waitstatus_to_exitcode(status)}\n")

    def _tell(self, line: str) -> None:
        try:
            os.write(self.events_fd, line.encode("ascii"))
        except BrokenPipeError:  # nobody listens any more; the input's end says what to do
            return


def _read_exactly(count: int) -> bytes | None:
    """So many bytes of the input, or None when it ends before."""
    parts: list[bytes] = []
    while count:
        part = os.read(INPUT_FD, count)
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _live(domain: str, birth: bytes, events_fd: int) -> None:
    """The child's whole life. Never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(events_fd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, INPUT_FD)
        os.close(nothing)
        cloudpickle.loads(birth)(domain)
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
