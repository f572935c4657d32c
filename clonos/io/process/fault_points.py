"""Named points of real processes at which a test may strike: off unless one option names who listens for them.

Armed, a thread that reaches a point says so to the listener and waits for its leave: meanwhile the listener may kill
the process, or another one. The listener is on this machine only. Simulated worlds announce points of the same names.
Rules: a point costs one ``is None`` while nothing is armed; a listener that is gone holds up nobody.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from enum import StrEnum
from typing import NewType

import msgspec

from clonos.core.model.errors import JobError

CONNECT_TIMEOUT_S = 1.0


class FaultPoint(StrEnum):
    """What has just been reached, in a real process or in a simulated world; few are announced by one of them only."""

    START = "start"  # of an incarnation's thread
    LOG_END = "log end"  # a task asks leave to go live
    LIVE = "live"  # and has got it
    EMISSION = "emission"  # a step was done, nothing of it has left
    ALIGNING = "aligning"  # the same, while a barrier has come by one input and not by all
    ALIGNED = "aligned"  # a barrier was put into the stream, with the snapshot
    END_OF_STREAM = "end of stream"  # a task has ended its stream, with the final snapshot
    INTENT = "intent"  # INTENT is in the log, and on its way to the keeper
    CALL = "call"  # the outside is about to be called
    CALLED = "called"  # the outside has answered, and nobody else knows
    SPILLING = "spilling"  # a segment of an in-flight log is about to be written to disk
    SNAPSHOT_BEGUN = "snapshot begun"  # a snapshot is about to be written to the store
    SNAPSHOT_WRITTEN = "snapshot written"  # it is there, and nobody knows
    WHOLE_STATE_BEGUN = "whole state begun"  # all of a task's state is about to be written beside its snapshots
    WHOLE_STATE_WRITTEN = "whole state written"  # it is there, and nobody knows
    METADATA_BEGUN = "metadata begun"  # all have acknowledged a checkpoint, which is about to be made durable
    METADATA_WRITTEN = "metadata written"  # durable, and nobody knows
    COMPLETE = "complete"  # the coordinator knows
    COMMITTED = "committed"  # a transactional sink has committed, and nobody knows
    TAKEN_IN = "taken in"  # a journalled source has got bytes of its pusher, and nobody else knows
    ACKNOWLEDGED = "acknowledged"  # the pusher was told that they are kept
    OUTSIDE_OPENED = "outside opened"  # a sink has opened its outside
    OUTSIDE_WRITTEN = "outside written"  # the outside has it, and nobody else knows
    VIEW_ISSUED = "view issued"
    ROLLBACK_ISSUED = "rollback issued"


DerivedPoint = NewType("DerivedPoint", str)
"""A point that is named for another one or for a message: see ``of_shadow`` and ``delivered``."""


def of_shadow(point: FaultPoint) -> DerivedPoint:
    """The point where a shadow does again what its task has done."""
    return DerivedPoint(f"{point} of a shadow")


def delivered(word: str) -> DerivedPoint:
    """A message with this word on the wire has come, and nobody has read it."""
    return DerivedPoint(f"{word} delivered")


class FaultPointReached(msgspec.Struct, frozen=True):
    """A point was reached: by which process, in which task (none for a whole slot or the driver), at what."""

    point: str
    pid: int
    task: str = ""
    detail: str = ""


class FaultPointsMisused(JobError):
    """The option does not name a listener on this machine."""

    address: str

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

    def reach(self, point: FaultPoint | DerivedPoint, task: str = "", detail: str = "") -> None:
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
