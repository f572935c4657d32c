"""Attacks: false messages are refused or ignored, and the injected attacks and their cost are counted."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.wire import message_codec
from clonos.core.wire.control_messages import Logged, SlotStatus, Suspicion, Warned
from clonos.core.wire.messages import Message
from clonos.io.net.curve import KeyPair
from clonos_chaos.attacks.attack_keys import StolenPeer, Thief, read_loot
from clonos_chaos.attacks.attack_lies import AttackedJob, TaskLocation, lies_to_coordinator, lies_to_slot
from clonos_chaos.real.runner_watch import MemoryWatch
from clonos_chaos.scenario.scenario import FaultKind, ScenarioLimits, Weapon
from clonos_chaos.scenario.scenario_file import ScenarioRefused, find_scenario, parse_scenarios, read_scenarios
from tests.harnesses.coordinator_harness import CoordinatorHarness, chain_plan
from tests.harnesses.slot_dialogue import SlotDialogue
from tests.unit.io.net.transports import Station

LIAR = SlotId(1)


def _reported(message: Message) -> Message:
    return message_codec.decode_message(message_codec.encode_message(message), "a liar")


def _heartbeat(dialogue: SlotDialogue) -> list[str]:
    """Messages of the slot at a heartbeat, without their numbers."""
    return [re.sub(r"message \d+", "message", line) for line in dialogue.run("tick")]


def test_each_false_message_to_a_slot_is_ignored_or_costs_its_connection() -> None:
    dialogue = SlotDialogue()
    for command in (
        "slot 2",
        "view 1  a 1@1 fresh standbys=2  b 1@2 fresh keepers=3 standbys=3  c 1@3 fresh keepers=2 standbys=2",
        "handshake b->c",
        "batch a->b x first=0 log=a[0!:r1]",
    ):
        dialogue.run(command)
    slot = dialogue.slot
    assignment = [TaskLocation(p.task, p.incarnation, p.slot) for p in slot.view.placements]
    job = AttackedJob(assignment, [(channel.sender, channel.receiver) for channel in slot.plan.channels])
    dialogue.run("tick")
    before = _heartbeat(dialogue)
    refused = meant_nothing = 0
    for lie in lies_to_slot(LIAR, SlotId(2), job):
        try:
            dialogue.post(MessageReceived(LIAR, _reported(lie)))
            meant_nothing += 1
        except MessageMalformed:
            refused += 1
        assert dialogue.shell.lines == [], lie
    assert refused > 20
    assert meant_nothing < refused
    assert _heartbeat(dialogue) == before


def test_each_false_message_to_a_coordinator_is_ignored_or_costs_its_connection() -> None:
    harness = CoordinatorHarness(chain_plan(2, has_effects=True))
    harness.form("ababab", slots=6)
    harness.complete(1)
    assignment = [TaskLocation(p.task, p.incarnation, p.slot) for p in harness.view.placements]
    before = harness.view
    refused = 0
    for lie in lies_to_coordinator(LIAR, AttackedJob(assignment, [])):
        if isinstance(lie, Logged | Warned):
            continue  # for the log
        try:
            harness.receive(LIAR, _reported(lie))
            is_over = getattr(lie, "incarnation", before.generation) < before.generation
            assert is_over or isinstance(lie, SlotStatus | Suspicion), lie
        except MessageMalformed:
            refused += 1
    assert refused > 20
    harness.tick(500)
    assert [(p.task, p.incarnation, p.slot) for p in harness.view.placements] == [
        (p.task, p.incarnation, p.slot) for p in before.placements
    ]
    assert not harness.coordinator.recoveries
    harness.complete(2)


def test_a_slot_of_an_attacked_job_hands_its_keys_and_peers_to_the_attacker(tmp_path: Path) -> None:
    thief = Thief(str(tmp_path / "loot"))
    one = Station(1, use_curve=True, rewriter=thief)
    driver = Station(COORDINATOR, use_curve=True, admits_unknown=True, rewriter=thief)
    try:
        one.knows(driver)
        driver.knows(one)
        one.send(COORDINATOR, SlotStatus(SlotId(1), 0, 0, (), (), ()))  # type: ignore[arg-type]
        driver.send(one, SlotStatus(SlotId(1), 0, 0, (), (), ()))  # type: ignore[arg-type]
        (loot,) = read_loot(tmp_path / "loot")
        assert (loot.slot, KeyPair(loot.public_key, loot.secret_key)) == (1, one.keys)
        assert loot.peers == {COORDINATOR: StolenPeer(*driver.transport.address)}
    finally:
        one.close()
        driver.close()


def test_memory_is_judged_by_its_growth_since_the_attack_began() -> None:
    size = 50 << 20
    # A process of its own: in that of the tests, allocators return memory of earlier tests at any time.
    code = f"taken = b''\nwhile input(): taken = b'x' * ({size} - len(taken)); print(flush=True)"
    with Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True) as other:

        def step() -> None:
            print("next", file=other.stdin, flush=True)
            assert other.stdout is not None
            other.stdout.readline()

        watch = MemoryWatch()
        step()
        step()
        watch.look([other.pid, 2**22 + 1])
        assert watch.checks(ScenarioLimits()) == []
        watch.begin()
        step()
        watch.look([other.pid])
        step()
        peak, left = watch.checks(ScenarioLimits(memory_peak_bytes=size // 2, memory_left_bytes=size * 100))
        assert not peak.is_good
        assert left.is_good
        assert all(check.is_good for check in watch.checks(ScenarioLimits(memory_peak_bytes=size * 100)))
        print(file=other.stdin, flush=True)


def test_each_attack_has_a_run_in_the_shipped_scenario() -> None:
    runs = read_scenarios(find_scenario("attack"))
    assert {fault.weapon for run in runs for fault in run.faults} == set(Weapon)
    assert all(run.needs_attackers for run in runs)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('kind = "pause"\nweapon = "crowd"', "weapon does not apply to pause"),
        ('kind = "attack"\nvictim = "window"', "victim does not apply to attack"),
        ('kind = "attack"\nweapon = "sword"', "weapon is 'sword'"),
        ('kind = "attack"\nconnections = 0', "not below 1"),
    ],
)
def test_an_impossible_attack_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioRefused, match=complaint):
        parse_scenarios(f'name = "x"\njob = "described"\n[[faults]]\nat = {{ seconds = 1 }}\n{text}\n', "x.toml")


def test_attacks_are_refused_in_a_simulated_world() -> None:
    from clonos_chaos.runs.runner_simulated import refusal

    assert f"{FaultKind.ATTACK} does not exist in the simulated world" in refusal(
        read_scenarios(find_scenario("attack"))[0]
    )
