"""Named points of real processes at which a test may inject a fault; off unless an option names a listener.

While armed, a thread that reaches a point reports it to the listener and waits until the listener releases it;
meanwhile the listener may kill this process or another one. The listener is on this machine only; a dead listener
blocks no thread. Simulated worlds announce points of the same names. An unarmed point costs one ``is None``.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from enum import StrEnum
from typing import NewType

import msgspec

from clonos.core.model.errors import JobError
from clonos.io.interception.answers import answered_with

CONNECT_TIMEOUT_S = 1.0


class FaultPoint(StrEnum):
    """Point that was just reached, in a real process or a simulated world; a few exist in one of them only."""

    START = "start"  # the thread of an incarnation has started
    LOG_END = "log end"  # a task has replayed its log and requests to go live
    LIVE = "live"  # the task may go live
    EMISSION = "emission"  # a step is complete, none of its output was sent
    ALIGNING = "aligning"  # the same, while a barrier has arrived on some inputs but not on all
    ALIGNED = "aligned"  # a barrier was emitted, with the snapshot
    SUSPENDED = "suspended"  # a task makes no further step, because it moves; nobody else knows
    END_OF_STREAM = "end of stream"  # a task has ended its stream, with the final snapshot
    INTENT = "intent"  # INTENT is in the log, and is being sent to the keeper
    CALL = "call"  # an external system is about to be called
    CALLED = "called"  # the external system has answered; only this thread knows
    SPILLING = "spilling"  # a segment of an in-flight log is about to be written to disk
    SNAPSHOT_BEGUN = "snapshot begun"  # a snapshot is about to be written to the store
    SNAPSHOT_WRITTEN = "snapshot written"  # it is durable; only this thread knows
    WHOLE_STATE_BEGUN = "whole state begun"  # the full state of a task is about to be written, apart from its snapshots
    WHOLE_STATE_WRITTEN = "whole state written"  # it is durable; only this thread knows
    READ_AHEAD = "read ahead"  # a part of the state of a task is about to be read that begins after a change of widths
    METADATA_BEGUN = "metadata begun"  # all tasks have acknowledged a checkpoint; its metadata is about to be written
    METADATA_WRITTEN = "metadata written"  # it is durable; only this thread knows
    DIVISION_BEGUN = "division begun"  # the state of a cut is about to be divided among the tasks of other widths
    DIVIDED = "divided"  # what they restore is durable; only this thread knows
    COMPLETE = "complete"  # the coordinator has completed a checkpoint
    COMMITTED = "committed"  # a transactional sink has committed; only this thread knows
    TAKEN_IN = "taken in"  # a journalled source has received bytes of its producer; no other process has them
    ACKNOWLEDGED = "acknowledged"  # the producer was told that its bytes are replicated
    SINK_OPENED = "sink opened"  # an immediate sink has registered with its external system
    SINK_WRITTEN = "sink written"  # the external system has the rows; only this thread knows
    VIEW_ISSUED = "view issued"
    ROLLBACK_ISSUED = "rollback issued"


DerivedPoint = NewType("DerivedPoint", str)
"""Point derived from another point or from a message: see ``of_shadow`` and ``delivered``."""


def of_shadow(point: FaultPoint) -> DerivedPoint:
    """Returns the point at which a shadow repeats what its task has done."""
    return DerivedPoint(f"{point} of a shadow")


def delivered(word: str) -> DerivedPoint:
    """Returns the point at which a message with this wire tag has arrived and was not read yet."""
    return DerivedPoint(f"{word} delivered")


class FaultPointReached(msgspec.Struct, frozen=True):
    """Report of a thread that reached a point. ``task``: empty for a whole slot and for the driver."""

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
            ' "127.0.0.1:40000", or "127.0.0.1:40000/aligned,live" for some points. It is for tests that kill processes'
            " at named points; leave it out otherwise."
        )


class FaultPoints:
    """Client of the listener. ``reach`` may be called by any thread, and returns when the listener releases it."""

    def __init__(self, address: str) -> None:
        """Parses ``address``: host:port of a loopback address; after a slash the points that are reported, with commas
        between, by default all. Raises: FaultPointsMisused: it is none."""
        listener, slash, points = address.partition("/")
        host, _, port = listener.rpartition(":")
        self._points = frozenset(points.split(",")) if slash else None
        try:
            is_right = ipaddress.ip_address(host).is_loopback and not (self._points or set()) - {*FaultPoint}
            self._address = (host, int(port))
        except ValueError:
            is_right = False
        if not is_right:
            raise FaultPointsMisused(address)

    def reach(self, point: FaultPoint | DerivedPoint, task: str = "", detail: str = "") -> None:
        """Reports the point, and waits until the listener releases this thread or has ended."""
        if self._points is not None and point not in self._points:
            return
        line = msgspec.json.encode(FaultPointReached(point, os.getpid(), task, detail)) + b"\n"
        try:
            # A point inside a step with intercept=True: the connection is none of the user's.
            with answered_with(None), socket.create_connection(self._address, CONNECT_TIMEOUT_S) as connection:
                connection.settimeout(None)
                connection.sendall(line)
                connection.recv(1)
        except OSError:  # the listener has ended
            return


def armed(address: str) -> FaultPoints | None:
    """Returns the client for the address of the option; None when it is empty."""
    return FaultPoints(address) if address else None
