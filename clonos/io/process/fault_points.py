"""Named points of real processes at which a test may strike: off unless one option names who listens for them.

Armed, a thread that reaches a point says so to the listener and waits for its leave: meanwhile the listener may kill
the process, or another one. The listener is on this machine only. Points have the names that simulated worlds use,
``<message> delivered`` among them. Rules: a point costs one ``is None`` while nothing is armed; a listener that is gone
holds up nobody.
"""

from __future__ import annotations

import ipaddress
import os
import socket

import msgspec

from clonos.core.model.errors import JobError

CONNECT_TIMEOUT_S = 1.0


class FaultPointReached(msgspec.Struct, frozen=True):
    """A point was reached: by which process, in which task (none for a whole slot or the driver), at what."""

    point: str
    pid: int
    task: str = ""
    detail: str = ""


class FaultPointsMisused(JobError):
    """The option does not name a listener on this machine."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        return (
            f"fault_points is {self.address!r}, but the address of a listener on this machine is expected, such as"
            ' "127.0.0.1:40000". It is for tests that kill processes at named points; leave it out otherwise.'
        )


class FaultPoints:
    """``reach`` may be called by any thread; it returns when the listener lets the thread go on."""

    def __init__(self, address: str) -> None:
        """``address``: host:port. FaultPointsMisused."""
        host, _, port = address.rpartition(":")
        try:
            is_here = ipaddress.ip_address(host).is_loopback
            self._address = (host, int(port))
        except ValueError:
            is_here = False
        if not is_here:
            raise FaultPointsMisused(address)

    def reach(self, point: str, task: str = "", detail: str = "") -> None:
        """Tells, and waits."""
        told = msgspec.json.encode(FaultPointReached(point, os.getpid(), task, detail)) + b"\n"
        try:
            with socket.create_connection(self._address, CONNECT_TIMEOUT_S) as connection:
                connection.settimeout(None)
                connection.sendall(told)
                connection.recv(1)
        except OSError:  # nobody listens any more
            return


def armed(address: str) -> FaultPoints | None:
    """What the option says."""
    return FaultPoints(address) if address else None
