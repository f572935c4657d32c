"""Mutants of replication coverage: when a log need not be forwarded any further (``replicas``)."""

from __future__ import annotations

from typing import Any

from clonos.core.external.keeper import Keeper
from clonos.core.external.output_gate import OutputGate
from clonos.core.log.replication_coverage import Coverage
from clonos.core.model.ids import journal_of, log_of
from clonos.core.recovery import gathering as gather
from clonos.core.wire.log_delta import Delta
from clonos_chaos.project.mutants.mutation import Mutation, mutant


@mutant("3")
def tasks_count_instead_of_domains(mutation: Mutation) -> None:
    """A log that came from a task of the own domain is held in one domain only."""

    def came(self: Coverage, task: Any, sender: Any, end_bytes: int) -> None:
        self.covered[task] = max(end_bytes, self.covered.get(task, 0))
        self.uncovered.pop(task, None)

    mutation.swap(Coverage, "came", came)


@mutant("3")
def logs_stop_before_they_are_acknowledged(mutation: Mutation) -> None:
    """A log is left out only when its keepers have acknowledged it."""

    def deltas(right: Any, self: Coverage, shipped: Any, logs: Any) -> Any:
        self.covered[self.own_log] = logs.end_bytes(self.own_log)
        return right(self, shipped, logs)

    mutation.wrap(Coverage, "deltas", deltas)


@mutant("3")
def any_acknowledgement_covers_all(mutation: Mutation) -> None:
    """A log is covered up to what a keeper has acknowledged, and not beyond."""

    def acknowledged(right: Any, self: Coverage, links: Any, logs: Any) -> None:
        right(self, links, logs)
        self.covered[self.own_log] = logs.end_bytes(self.own_log)
        self.uncovered.pop(self.own_log, None)

    mutation.wrap(Coverage, "acknowledged", acknowledged)


@mutant("6.4")
def one_piece_is_the_log(mutation: Mutation) -> None:
    """With ``replicas``, the pieces of a log at several holders are joined."""

    def joined(right: Any, gathering: Any, task: Any, base_bytes: int) -> Any:
        found, _ = right(gathering, task, base_bytes)
        own = [d for _, deltas in gathering.replies for d in deltas if d.log == log_of(task)]
        pieces = [d for d in own if d.offset_bytes <= base_bytes]
        longest = min(pieces, key=lambda d: d.offset_bytes + len(d.data), default=None)
        data = longest.data[base_bytes - longest.offset_bytes :] if longest is not None else b""
        found[log_of(task)] = Delta(log_of(task), base_bytes, False, data)
        return found, base_bytes + len(data)

    mutation.wrap(gather, "joined_logs", joined)


@mutant("6.8")
def holes_pass(mutation: Mutation) -> None:
    """A log with a hole is lost: it is not continued where other holders have the part after the hole."""

    def joined(right: Any, gathering: Any, task: Any, base_bytes: int) -> Any:
        return right(gathering, task, base_bytes)[0], 0

    mutation.wrap(gather, "joined_logs", joined)


@mutant("6.4")
def keepers_send_successors_only_their_own_log(mutation: Mutation) -> None:
    """With ``replicas``, too, the keeper of a task sends its successor all its logs: no other holder may have them."""

    def answer(self: Keeper, asker: Any, plan: Any) -> Any:
        return self.logs.deltas((log_of(asker), journal_of(asker)))

    mutation.swap(Keeper, "reply", answer)


@mutant("7")
def new_keepers_get_what_is_not_covered(mutation: Mutation) -> None:
    """A new keeper gets all logs of the task: covered parts may have been covered by a keeper that is gone."""

    def keep_all(self: OutputGate, link: Any) -> None:
        link.rewind(self.logs, self._held_logs())
        if link.dirty or not link.is_ready:
            self._keep(link, is_whole=True)

    mutation.swap(OutputGate, "_keep_all", keep_all)
