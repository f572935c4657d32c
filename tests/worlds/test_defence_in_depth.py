"""Redundant rules: no world fails without one of them, so each has its own test.

``docs/protocol.md``, section 12, lists them, and what stands in for each. A case is a test of the core or, here, one in
a world that was stopped in its midst. Each fails where its rule is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos.core.channel.receiver import ChannelReceiver
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, Incarnation, SlotId, TaskId, ViewNumber, log_of
from clonos.core.ports.slot_effects import SendMessage
from clonos.core.recovery.gathering import Gathering, Holder
from clonos.core.recovery.recovery_machine import Live, Recovering, Replaying, Stalled
from clonos.core.slot.hosted_task import HostedTask
from clonos.core.slot.slot_events import ElementsNeeded, MessageReceived
from clonos.core.values import encode_rows
from clonos.core.wire.channel_messages import Batch, Position
from clonos.core.wire.control_messages import View
from clonos.core.wire.log_delta import Delta
from clonos.core.wire.recovery_messages import LogReply, LogRequest
from clonos_chaos.project.directed.building_blocks import RICH, directed, line
from clonos_chaos.project.mutants.all_mutants import MUTANTS, mutated
from clonos_chaos.sim.external_systems import SimExternalSystem, SimFenced
from clonos_chaos.sim.sim_slot import SimSlot
from clonos_chaos.swarm.world import World
from tests.unit.coordinator import test_endings, test_failover
from tests.unit.core.channel import test_sessions
from tests.unit.core.recovery import test_gathering
from tests.unit.core.slot import test_state_mirror
from tests.unit.core.task import test_task_replay

pytestmark = pytest.mark.controls

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"


class Midst:
    """A world whose tasks are all live: one of them, ``a/0``, and what its slot sends from now on."""

    def __init__(self) -> None:
        self.world: World = directed(1, line(RICH, RICH), [])
        for _ in range(self.world.slots_needed):
            self.world.add_slot()
        self.world.coordinator.begin(self.world.slots_needed)
        while not self.world.view.number or not all(map(self._is_live, self.world.plan.tasks)):
            self.world.clock.step()
        self.slot, self.hosted = self._find("a/0")
        (self.receiver,) = self.hosted.inputs.receivers.values()
        self.sent: list[Any] = []
        self.slot.performers[SendMessage] = lambda asked: self.sent.append(asked.message)

    def _is_live(self, task: TaskId) -> bool:
        slot = self.world.slot_of(task)
        hosted = slot.slot.hosted.get(task) if slot is not None else None
        return hosted is not None and isinstance(hosted.state, Live)

    def _find(self, name: str) -> tuple[SimSlot, HostedTask]:
        task = self.world.task(name)
        slot = self.world.slot_of(task)
        assert slot is not None
        return slot, slot.slot.hosted[task]

    def barrier(self, **changes: Any) -> Batch:
        """The next element of the input, as its sender would send it now, but for the changes."""
        receiver: ChannelReceiver = self.receiver
        assert receiver.sender is not None
        batch = Batch(
            channel=receiver.channel.id,
            sender=receiver.sender,
            receiver=self.hosted.incarnation,
            session=receiver.session,
            ordinal=receiver.next_ordinal,
            first_seq=receiver.next_seq,
            kind=ElementKind.BARRIER,
            count=1,
            checkpoint=99,  # type: ignore[arg-type]
            deltas=(),
        )
        return msgspec.structs.replace(batch, **changes)

    def deliver(self, batch: Batch) -> None:
        """The batch has come from the slot of the input's sender."""
        sender = self.slot.slot.view.placements[self.receiver.channel.sender].hosting_slot
        self.slot.handle(MessageReceived(sender, batch, b""))

    def perform(self) -> None:
        """What a part of the slot was asked directly leads to."""
        for asked in self.slot.slot.shell.take():
            self.slot.performers[type(asked)](asked)

    def end(self) -> None:
        """Kills all slots of the world."""
        for slot in self.world.slots.values():
            slot.kill()


Case = Callable[[Midst], None]


def a_batch_of_an_earlier_session_is_dropped(midst: Midst) -> None:
    before = midst.receiver.next_seq
    late = midst.barrier()
    midst.hosted.inputs.renew(midst.receiver)
    midst.deliver(msgspec.structs.replace(late, ordinal=0))
    assert midst.receiver.next_seq == before


def a_batch_of_a_dead_sender_is_dropped(midst: Midst) -> None:
    before, view = midst.receiver.next_seq, midst.slot.slot.view
    midst.slot.slot.view = msgspec.structs.replace(
        view, generation=ViewNumber(view.generation - 1)
    )  # which has more incarnations
    midst.deliver(midst.barrier(sender=Incarnation(midst.barrier().sender - 1)))
    assert midst.receiver.next_seq == before


def the_sender_repeats_its_position_at_the_heartbeat(midst: Midst) -> None:
    midst.hosted.tick()
    midst.perform()
    assert [message.channel for message in midst.sent if isinstance(message, Position)] == list(
        midst.hosted.outputs.senders
    )


def what_replay_needs_is_granted_beyond_the_window(midst: Midst) -> None:
    receiver = midst.receiver
    receiver.window_bytes, receiver.queued_bytes = 1, 1
    receiver.granted_bytes = receiver.announced_credit_bytes = receiver.session_bytes
    hosted = midst.hosted
    midst.slot.handle(ElementsNeeded(hosted.task, hosted.thread, receiver.channel.id, receiver.next_seq + 1))
    assert receiver.granted_bytes > receiver.session_bytes


def a_view_of_an_earlier_term_is_answered_and_not_obeyed(midst: Midst) -> None:
    installed = midst.slot.slot.view
    later = msgspec.structs.replace(installed, number=installed.number + (1 << 32))
    midst.slot.handle(MessageReceived(SlotId(0), later, b""))
    earlier = msgspec.structs.replace(installed, number=installed.number + 1)
    midst.slot.handle(MessageReceived(SlotId(0), earlier, b""))
    assert midst.slot.slot.view.number == later.number
    assert [message.number for message in midst.sent if isinstance(message, View)] == [later.number]


def a_holder_that_recovers_answers_with_what_it_has(midst: Midst) -> None:
    view = midst.slot.slot.view
    asker = midst.world.task("source/0")
    nobody = Holder(midst.hosted.task, False, midst.slot.id)
    midst.hosted.recovery.state = Recovering(Gathering(view.number, frozenset((nobody,))), False)
    question = LogRequest(asker, view.placements[asker].incarnation, view.number, midst.hosted.task, False)
    midst.slot.handle(MessageReceived(view.placements[asker].hosting_slot, question, b""))
    assert [message.task for message in midst.sent if isinstance(message, LogReply)] == [asker]


def a_task_adopts_the_replicas_that_it_should_hold(midst: Midst) -> None:
    other = log_of(midst.world.task("source/0"))
    midst.hosted.logs.replicas.clear()
    midst.hosted.adopt_logs({other: Delta(other, 0, False, b"\x01\x02")})
    assert other in midst.hosted.logs.replicas
    assert bytes(midst.hosted.logs.replicas[other].data) == b"\x01\x02"


def the_position_of_a_receiver_that_is_being_replaced_costs_no_log(midst: Midst) -> None:
    (sender,) = midst.hosted.outputs.senders.values()
    sender.session, sender.received_up_to = 0, 10_000
    midst.hosted.recovery.state = Replaying()
    midst.hosted.end_log({ChannelId(sender.channel.id): 1})
    assert isinstance(midst.hosted.state, Stalled)


def an_external_system_accepts_nothing_from_a_fenced_incarnation(_midst: Midst) -> None:
    external = SimExternalSystem("sink/0")
    external.register(1, 5, 0)
    external.register(1, 6, 0)
    with pytest.raises(SimFenced):
        external.write(5, 0, 1, encode_rows([(0, ())]))
    assert external.next_number == 0


CASES: dict[str, Case] = {
    "positions_of_the_dead_count": the_position_of_a_receiver_that_is_being_replaced_costs_no_log,
    "holders_that_recover_do_not_answer": a_holder_that_recovers_answers_with_what_it_has,
    "messages_of_dead_senders_count": a_batch_of_a_dead_sender_is_dropped,
    "messages_of_earlier_sessions_count": a_batch_of_an_earlier_session_is_dropped,
    "no_positions_at_the_heartbeat": the_sender_repeats_its_position_at_the_heartbeat,
    "external_system_does_not_fence": an_external_system_accepts_nothing_from_a_fenced_incarnation,
    "replay_keeps_to_the_credit_window": what_replay_needs_is_granted_beyond_the_window,
    "replicas_are_not_gathered": a_task_adopts_the_replicas_that_it_should_hold,
    "slots_obey_any_term": a_view_of_an_earlier_term_is_answered_and_not_obeyed,
}
"""Per wrong rule what fails with it, in a world of its own."""

IN_THE_CORE: dict[str, Callable[[], None]] = {
    "gaps_in_elements_pass": test_sessions.test_a_lost_tail_is_noticed_at_the_senders_heartbeat,
    "gaps_in_ordinals_pass": test_sessions.test_an_element_whose_causes_were_lost_with_a_heartbeat_is_refused,
    "holes_pass": test_gathering.test_pieces_after_a_hole_are_reported_separately_from_the_log,
    "dropped_keepers_count_as_ready": (test_failover.test_a_keepers_report_counts_only_under_the_installed_view),
    "last_steps_are_held_too": (
        test_task_replay.test_replayed_steps_are_emitted_together_up_to_a_step_in_which_the_log_may_end
    ),
    "known_elements_are_taken_again": test_sessions.test_a_partly_known_batch_is_cut,
    "pending_checkpoints_outlive_the_generation": test_endings.test_a_drain_interrupted_by_a_rollback_starts_again,
    "standby_keeps_changes_of_the_dead": (
        test_state_mirror.test_changes_of_a_dead_incarnation_beyond_the_restored_checkpoint_are_dropped
    ),
    "handshake_does_not_reset_deltas": (test_sessions.test_a_delta_is_sent_once_per_session),
}
"""The same as tests of the core."""

DEFENCE_IN_DEPTH = frozenset((*CASES, *IN_THE_CORE))


def shows(mutant: str) -> bool:
    """Whether the case of a rule fails in this process as it is now."""
    if mutant in IN_THE_CORE:
        try:
            IN_THE_CORE[mutant]()
        except AssertionError:
            return True
        return False
    midst = Midst()
    try:
        CASES[mutant](midst)
    except (AssertionError, pytest.fail.Exception):
        return True
    finally:
        midst.end()
    return False


@pytest.mark.parametrize("mutant", sorted(DEFENCE_IN_DEPTH))
def test_the_case_of_a_redundant_rule_fails_exactly_when_the_rule_is_removed(mutant: str) -> None:
    assert not shows(mutant)
    with mutated(mutant):
        assert shows(mutant)


def test_the_protocol_lists_every_redundant_rule() -> None:
    section = PROTOCOL.read_text("utf-8").partition("## 12. Defence in depth")[2]
    assert section
    assert {name for name in MUTANTS if f"`{name}`" in section} == DEFENCE_IN_DEPTH
