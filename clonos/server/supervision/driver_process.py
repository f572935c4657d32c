"""Process of a driver as the server sees it: its start, its adoption, its end and its kill.

An end is seen through a descriptor of the process (pidfd), for children and for adopted processes alike; a number of a
process is never trusted alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack, suppress

from clonos.io.system.process_identity import machine, started_at
from clonos.server.register.job_record import DriverProcess


class RunningDriver:
    """Living process of a driver. ``pidfd``: readable when it has ended; None where the system has no such thing."""

    def __init__(self, identity: DriverProcess, pidfd: int | None, child: subprocess.Popen[bytes] | None) -> None:
        self.identity, self.pidfd = identity, pidfd
        self._child = child

    @classmethod
    def of_child(cls, child: subprocess.Popen[bytes], attempt: int) -> RunningDriver:
        """Returns the driver that a child of this process is, or is about to be."""
        return cls(DriverProcess(child.pid, started_at(child.pid), machine(), attempt), _open(child.pid), child)

    @classmethod
    def adopt(cls, identity: DriverProcess) -> RunningDriver | None:
        """Takes over a driver that another server has started; None if it does not live. Raises: EnvironmentFault."""
        if identity.machine != machine() or not identity.started_at:
            return None
        with ExitStack() as stack:
            pidfd = _open(identity.pid)
            if pidfd is not None:
                stack.callback(os.close, pidfd)
            if started_at(identity.pid) != identity.started_at:  # looked at while the descriptor holds the number
                return None
            stack.pop_all()
        return cls(identity, pidfd, None)

    def has_ended(self) -> bool:
        """Returns whether the process has ended. Raises: EnvironmentFault: the system does not say it."""
        if self._child is not None:
            return self._child.poll() is not None
        return started_at(self.identity.pid) != self.identity.started_at

    @property
    def exit_code(self) -> int | None:
        """Exit code of a child that has ended; None of an adopted process."""
        return None if self._child is None else self._child.returncode

    def kill(self) -> None:
        """Ends the process by SIGKILL."""
        with suppress(ProcessLookupError):
            if self.pidfd is not None:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            elif not self.has_ended():
                os.kill(self.identity.pid, signal.SIGKILL)

    def close(self) -> None:
        """Closes the descriptor; the process goes on if it lives."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self._child is not None and self._child.returncode is None:
            self._child.returncode = 0  # it outlives this object on purpose, which Popen would report as a leak


def _open(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
