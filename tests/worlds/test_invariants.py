"""Invariants beside the fields of the core are asserted after every event of a world, and a broken one is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from typing import Any

import pytest

from clonos.core.channel.inflight_budget import InflightBudget
from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.channel.sender import ChannelSender
from clonos.core.checkpoint.pending_snapshots import PendingSnapshots
from clonos.core.coordinator.coordinator_state import CoordinatorState
from clonos.core.external.external_output import KeeperLink
from clonos.core.log.causal_log import CausalLogs
from clonos_chaos.project.mutants.mutation import Mutation
from clonos_chaos.swarm.world import VALIDATED_EVERY, World

pytestmark = pytest.mark.controls

SEEDS = range(0, 10 * VALIDATED_EVERY, VALIDATED_EVERY)
"""One of these worlds must show it."""


def _the_task_processes_what_has_not_come(mutation: Mutation) -> None:
    def processed(right: Any, self: ChannelReceiver, next_seq: int, freed_bytes: int) -> None:
        right(self, next_seq + 1, freed_bytes)

    mutation.wrap(ChannelReceiver, "processed", processed)


def _announced_credit_was_not_granted(mutation: Mutation) -> None:
    def handshake(right: Any, self: ChannelReceiver, *arguments: Any) -> Any:
        handshake = right(self, *arguments)
        self.announced_credit_bytes += 1
        return handshake

    mutation.wrap(ChannelReceiver, "handshake", handshake)


def _a_session_outlives_its_receiver(mutation: Mutation) -> None:
    def apply_view(right: Any, self: ChannelSender, receiver: Any) -> None:
        right(self, receiver)
        self.receiver, self.session = None, 1

    mutation.wrap(ChannelSender, "apply_view", apply_view)


def _memory_that_is_given_back_is_not_counted(mutation: Mutation) -> None:
    def grow(right: Any, self: InflightBudget, tail_bytes: int) -> None:
        right(self, max(tail_bytes, 0))

    mutation.wrap(InflightBudget, "grow", grow)


def _bytes_of_a_log_are_not_counted(mutation: Mutation) -> None:
    def append(self: CausalLogs, log: Any, data: bytes) -> None:
        self.replicas[log].data.extend(data)

    mutation.swap(CausalLogs, "append", append)


def _a_keeper_that_is_not_ready_keeps_what_it_acknowledged(mutation: Mutation) -> None:
    def acknowledge(right: Any, self: KeeperLink, retained: Any) -> None:
        right(self, retained)
        self.is_ready = False

    mutation.wrap(KeeperLink, "acknowledge", acknowledge)


def _a_snapshot_is_pending_twice(mutation: Mutation) -> None:
    def take(right: Any, self: PendingSnapshots, *arguments: Any) -> Any:
        name = right(self, *arguments)
        self.entries.append(self.entries[-1])
        return name

    mutation.wrap(PendingSnapshots, "take", take)


def _views_are_owed_to_a_slot_that_is_gone(mutation: Mutation) -> None:
    def forget_slot(right: Any, self: CoordinatorState, slot: Any) -> None:
        right(self, slot)
        self.behind_view[slot] = None

    mutation.wrap(CoordinatorState, "forget_slot", forget_slot)


BROKEN: dict[Callable[[Mutation], None], str] = {
    _the_task_processes_what_has_not_come: "receiver.py",
    _announced_credit_was_not_granted: "receiver.py",
    _a_session_outlives_its_receiver: "sender.py",
    _memory_that_is_given_back_is_not_counted: "inflight_budget.py",
    _bytes_of_a_log_are_not_counted: "causal_log.py",
    _a_keeper_that_is_not_ready_keeps_what_it_acknowledged: "external_output.py",
    _a_snapshot_is_pending_twice: "pending_snapshots.py",
    _views_are_owed_to_a_slot_that_is_gone: "coordinator_state.py",
}
"""Each with the file whose ``validate`` sees it."""


def _seen_in(seed: int) -> str:
    """The file whose ``validate`` has failed in a world; empty if none has."""
    try:
        World(seed).run()
    except Exception as failure:  # noqa: BLE001  a broken field may show elsewhere first: that is not what is asked
        cause: BaseException = failure
        while cause.__cause__ is not None:
            cause = cause.__cause__
        where = extract_tb(cause.__traceback__)[-1]
        if isinstance(cause, AssertionError) and where.name == "validate":
            return Path(where.filename).name
    return ""


@pytest.mark.parametrize("apply", BROKEN, ids=lambda apply: apply.__name__.removeprefix("_"))
def test_a_broken_invariant_is_seen_after_the_event_that_broke_it(apply: Callable[[Mutation], None]) -> None:
    mutation = Mutation()
    apply(mutation)
    try:
        assert any(_seen_in(seed) == BROKEN[apply] for seed in SEEDS)
    finally:
        mutation.undo()


def test_no_invariant_is_broken_where_every_rule_is_right() -> None:
    assert [_seen_in(seed) for seed in SEEDS] == [""] * len(SEEDS)
