"""Coverage: how far enough failure domains hold each log of a task, so that it need travel no further (protocol 3).

With ``replicas=f`` a log is *covered* up to an offset once f + 1 domains are known to hold it: the task's own, that of
the task which it came from, and those of the task's keepers that have acknowledged it. Domains count, never tasks nor
processes, because what is in one domain dies together. What is covered stays so: a death in between counts as one of
the f until its successors hold again what it held.

The owner leaves out what its keepers hold. A task that passes a log on leaves nothing out of the middle: a copy begins
where a completed checkpoint does, or where the owner's keepers hold all before. So the pieces that f deaths leave join.
"""

from __future__ import annotations

from collections.abc import Mapping

from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.ids import LogId, SlotId, TaskId, log_of
from clonos.core.model.plan import Plan
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta


class Coverage:
    """Coverage as one incarnation knows it."""

    __slots__ = ("covered", "domain", "domains", "givers", "own_log", "replicas", "slot", "uncovered")

    def __init__(self, task: TaskId, slot: SlotId, replicas: int) -> None:
        self.own_log, self.slot, self.replicas = log_of(task), slot, replicas
        self.domain = ""
        self.domains: dict[SlotId, str] = {}
        self.covered: dict[LogId, int] = {}  # per log, up to where; it only grows
        self.uncovered: dict[LogId, None] = {}  # logs that go on behind it: these ride, and go to keepers
        self.givers: dict[LogId, str] = {}  # where all bytes of an uncovered log came from, if from one domain
        #: Invariant: what is uncovered is held here, and the own log is covered up to its end at most

    @staticmethod
    def wanted(plan: Plan, task: TaskId, slot: SlotId) -> Coverage | None:
        """Returns the coverage of a task with ``replicas=f``; None where logs are shared up to a depth."""
        return None if plan.replicas is None else Coverage(task, slot, plan.replicas)

    def apply_view(self, view: View) -> None:
        """Takes over the failure domain of each slot."""
        self.domains = {address.slot: address.domain for address in view.slots}
        self.domain = self.domains.get(self.slot, "")

    def grew(self, log: LogId) -> None:
        """Counts a log that has grown here: nobody else is known to have it."""
        self.givers.pop(log, None)
        self.uncovered[log] = None

    def came(self, log: LogId, sender: SlotId | None, end_bytes: int) -> None:
        """Counts a log that has grown up to ``end_bytes`` by what a task in another slot holds too."""
        giver = self.domain if sender is None else self.domains.get(sender, self.domain)
        if giver != self.domain and self.replicas <= 1:
            self._cover(log, end_bytes)
            self.uncovered.pop(log, None)
        elif log not in self.uncovered:
            self.uncovered[log] = None
            self.givers[log] = giver
        elif self.givers.get(log) != giver:
            self.givers.pop(log, None)

    def _cover(self, log: LogId, end_bytes: int) -> None:
        self.covered[log] = max(end_bytes, self.covered.get(log, 0))

    def acknowledged(self, keepers: Mapping[SlotId, Mapping[LogId, int]], logs: CausalLogs) -> None:
        """Takes in what the ready keepers hold: per slot, the end of each log in bytes."""
        for log in list(self.uncovered):
            taken = {self.domain, self.givers.get(log, self.domain)}
            held: dict[str, int] = {}  # per domain, the furthest
            for slot, ends in keepers.items():
                domain = self.domains.get(slot, self.domain)
                if domain not in taken:
                    held[domain] = max(held.get(domain, 0), ends.get(log, 0))
            wanted = self.replicas + 1 - len(taken)
            if len(held) >= wanted:
                self._cover(log, sorted(held.values(), reverse=True)[wanted - 1])
            if self.covered.get(log, 0) >= logs.end_bytes(log):
                del self.uncovered[log]

    def validate(self, logs: CausalLogs) -> None:
        """Asserts what holds between two events."""
        assert self.uncovered.keys() <= logs.replicas.keys(), self.uncovered
        assert self.covered.get(self.own_log, 0) <= logs.end_bytes(self.own_log), self.covered

    def deltas(self, shipped: dict[LogId, int], logs: CausalLogs) -> tuple[Delta, ...]:
        """Returns what a session has not carried of what is not covered; it counts as carried from now on."""
        found = []
        for log in self.uncovered:
            end, sent = logs.end_bytes(log), shipped.get(log, -1)
            start = max(sent, self.covered.get(log, 0)) if log == self.own_log else sent
            if end <= start:
                continue
            delta = logs.delta(log, max(start, 0))
            if start > sent and not delta.restart:
                delta = Delta(log, start, True, delta.data)
            found.append(delta)
            shipped[log] = end
        return tuple(found)
