"""How many elements a step takes: so many that it costs about ``step_cost_us``.

A task whose predecessors died again and again is cautious: it takes its input element by element, and tells each
beforehand, so that a process which dies of its input names the element.
"""

from __future__ import annotations

from clonos.core.model.ids import ChannelId
from clonos.core.model.options import Options
from clonos.core.ports.task_port import TaskPort

COLUMNS_COST = 4
"""A step over columns aims at so many times ``step_cost_us``: most of what it costs is for a batch or a distinct key,
not for a record, so one that is cut short costs more a record, and is cut shorter for it."""

CAUTIOUS_BARRIERS = 2
"""Barriers after which a cautious task is an ordinary one, if it has taken an element before the first: so the
checkpoint of the first has time to complete, and the next life, if there is one, begins nearer to the end."""

CAUTIOUS_ELEMENTS_MAX = 4_096
CAUTIOUS_NS_MAX = 1_000_000_000
"""Elements, and a time, after which it is one in any case: what has piled up would take minutes one by one."""


class StepSize:
    """Of one incarnation. Nothing of it is logged: how long a step was, is."""

    def __init__(
        self, options: Options, port: TaskPort, is_cautious: bool, *, single_step_ns_max: int = CAUTIOUS_NS_MAX
    ) -> None:
        self._options, self._port, self._single_step_ns_max = options, port, single_step_ns_max
        self._is_cautious = is_cautious
        self._approached = 0
        self._approached_first_ns = 0
        self._barriers = 0  # since then
        self._cost_ns = 0.0  # of one element
        self._output_bytes = 0.0  # for one element, to the channel that gets most
        self._last = 0  # limit
        self.is_columnar = False  # it takes or gives columns

    def limit(self, budget_bytes: int, calls_room: int) -> int:
        """How many elements the next step may take: its output shall fit into ``budget_bytes``, and each may ask for
        one of ``calls_room`` asynchronous calls."""
        options = self._options
        if self._is_cautious:
            return min(1, calls_room)
        limit = options.step_records_first
        if self._cost_ns:
            aim_ns = options.step_cost_us * 1_000 * (COLUMNS_COST if self.is_columnar else 1)
            limit = min(max(1, int(aim_ns / self._cost_ns)), options.step_records_max)
        if self._output_bytes:
            # What is left of the room makes no tiny step: it may be passed by half a step.
            limit = min(limit, max(1, self._last // 2, int(budget_bytes / self._output_bytes)))
        self._last = limit
        return min(limit, calls_room)

    def begin(self) -> int:
        """A step begins; for ``measure``."""
        return self._port.cost_clock_ns()

    def measure(self, count: int, began_ns: int) -> None:
        """A step has taken so many elements."""
        cost_ns = max(0, self._port.cost_clock_ns() - began_ns) / count
        self._cost_ns = cost_ns if not self._cost_ns else 0.7 * self._cost_ns + 0.3 * cost_ns

    def produced(self, count: int, cost_bytes: int) -> None:
        """A step over so many elements has added so much to the channel that got most."""
        output_bytes = cost_bytes / count
        self._output_bytes = output_bytes if not self._output_bytes else 0.7 * self._output_bytes + 0.3 * output_bytes

    def announce_step(self, channel: ChannelId | None, first_seq: int) -> None:
        """Tells, while it is cautious, what may be the task's end."""
        if self._is_cautious:
            if not self._approached:
                self._approached_first_ns = self._port.now_ns()
            self._port.announce_step(channel, first_seq)
            self._approached += 1
            cautious_ns = self._port.now_ns() - self._approached_first_ns
            self._is_cautious = self._approached < CAUTIOUS_ELEMENTS_MAX and cautious_ns < self._single_step_ns_max

    def barrier(self) -> None:
        """An epoch has ended."""
        self._barriers += self._approached > 0
        self._is_cautious = self._is_cautious and self._barriers < CAUTIOUS_BARRIERS
