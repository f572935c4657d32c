"""Replication coverage: how far each log is held in enough failure domains to stop sharing it (protocol 3).

With ``replicas=f`` a log is *covered* up to an offset once f + 1 domains are known to hold it: the task's own domain,
the domain of the task that it came from, and the domains of the task's keepers that have acknowledged it. Domains
count, not tasks or processes, because a domain fails as a whole. Covered bytes stay covered: a domain that dies counts
as one of the f until its successors hold again what it held.

The owner leaves out what its keepers hold. A task that passes a log on leaves out nothing in the middle: a copy begins
at a completed checkpoint, or where the owner's keepers hold everything before. So the pieces left by f deaths join.
"""

from __future__ import annotations

from collections.abc import Mapping

from clonos.core.log.causal_log import CausalLogs
from clonos.core.model.ids import LogId, SlotId, TaskId, log_of
from clonos.core.model.plan import Plan
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta


class Coverage:
    """Coverage of the logs that one incarnation holds, as far as it knows."""

    __slots__ = ("covered", "domain", "domains", "givers", "own_log", "replicas", "slot", "uncovered")

    def __init__(self, task: TaskId, slot: SlotId, replicas: int) -> None:
        self.own_log, self.slot, self.replicas = log_of(task), slot, replicas
        self.domain = ""
        self.domains: dict[SlotId, str] = {}
        self.covered: dict[LogId, int] = {}  # end of the covered part of each log; it only grows
        self.uncovered: dict[
            LogId, None
        ] = {}  # logs with bytes that are not covered: these are shared and sent to keepers
        self.givers: dict[LogId, str] = {}  # domain from which all bytes of an uncovered log came, if it was one domain
        #: Invariant: what is uncovered is held here, and the own log is covered up to its end at most

    @staticmethod
    def wanted(plan: Plan, task: TaskId, slot: SlotId) -> Coverage | None:
        """Returns the coverage of a task if sharing stops in this plan, else None."""
        return None if plan.replicas is None else Coverage(task, slot, plan.replicas)

    def apply_view(self, view: View) -> None:
        """Learns the domains of all slots from a view."""
        self.domains = {address.slot: address.domain for address in view.slots}
        self.domain = self.domains.get(self.slot, "")

    def grew(self, log: LogId) -> None:
        """Notes that a log has grown here, so that no other domain is known to hold its end."""
        self.givers.pop(log, None)
        self.uncovered[log] = None

    def came(self, log: LogId, sender: SlotId | None, end_bytes: int) -> None:
        """Notes that a log has grown up to ``end_bytes`` by a message from another task, which holds the same bytes."""
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
        """Updates the covered parts by what ready keepers hold: per slot, the end of each log in bytes."""
        for log in list(self.uncovered):
            taken = {self.domain, self.givers.get(log, self.domain)}
            held: dict[str, int] = {}  # furthest offset per domain
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
        """Returns the uncovered bytes that a session has not carried, and marks them as shipped."""
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
