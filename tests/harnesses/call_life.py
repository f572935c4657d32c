"""Lives of the code of one asynchronous call: each has the parts that the log has of the lives before it."""

from __future__ import annotations

from itertools import count
from typing import cast

from clonos.core.log.call_usage import CallAccount
from clonos.core.model.metric_series import MetricTable
from clonos.core.ports.task_port import TaskPort
from clonos.core.task.call_parts import PART_BYTES, CallParts

KEY = "6b8c"


class Port:
    """Port of a task whose log has what ``reported`` has. A part above ``dies_after`` is lost with the process."""

    def __init__(self, reported: dict[bytes, bytes], dies_after: int = 1_000) -> None:
        self.reported, self.dies_after, self.waited = reported, dies_after, 0
        self.instants = count(10**18)

    def now_ns(self) -> int:
        return next(self.instants)

    def report_part(self, number: int, asked: int, data: bytes, *, waits: bool) -> bool:
        if len(self.reported) >= self.dies_after:
            raise Died
        self.reported.setdefault(data[:PART_BYTES], data[PART_BYTES:])
        self.waited += waits
        return True


class Died(BaseException):
    """The process died."""


def life(reported: dict[bytes, bytes], dies_after: int = 1_000, *, has_effects: bool = True) -> CallParts:
    """A life of the code, whose log has ``reported`` and takes what is new."""
    port = cast(TaskPort, Port(reported, dies_after))
    return CallParts(7, KEY, reported, port, has_effects, CallAccount(MetricTable(), 1))
