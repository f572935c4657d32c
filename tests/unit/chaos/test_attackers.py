"""Attackers: a connection that is refused early stops no attack, and an attacker that fails ends the run at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from clonos.io.net.curve import new_keys
from clonos.status import Phase, Status
from clonos_chaos.attacks import attack_messages
from clonos_chaos.attacks.attack_keys import Loot, StolenPeer
from clonos_chaos.attacks.attack_lies import AttackedJob
from clonos_chaos.attacks.attack_messages import lie, refused, unfinished
from clonos_chaos.attacks.attackers import Attack
from clonos_chaos.real.runner_faults import Lasting
from clonos_chaos.real.runner_processes import Ongoing, ProcessRun
from clonos_chaos.scenario.run_record import Injection
from clonos_chaos.scenario.scenario_file import parse_scenarios
from tests.speed import scaled
from tests.unit.io.net.transports import LIMIT_S, Station
from tests.waiting import await_condition

Attacking = Callable[[StolenPeer, float, Callable[[], None]], None]
FIRST_S = 0.2


@pytest.fixture
def victim() -> Iterator[StolenPeer]:
    """A slot that refuses every unknown key."""
    station, is_over = Station(1, use_curve=True), threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            station.transport.poll(5, station)

    thread = threading.Thread(target=serve, name="victim")
    thread.start()
    yield StolenPeer(*station.transport.address)
    is_over.set()
    thread.join()
    station.close()


def _loot(victim: StolenPeer) -> Loot:
    """A key that the slot does not know."""
    return Loot(2, *new_keys(), {victim.slot: victim})


def _refused(victim: StolenPeer, until_s: float, count: Callable[[], None]) -> None:
    refused([victim.control_address], until_s, victim.public_key, count)


def _unfinished(victim: StolenPeer, until_s: float, count: Callable[[], None]) -> None:
    unfinished(_loot(victim), until_s, count)


def _lie(victim: StolenPeer, until_s: float, count: Callable[[], None]) -> None:
    lie(_loot(victim), AttackedJob([], []), until_s, count)


@pytest.mark.parametrize(
    ("attack", "counts"), [(_refused, True), (_unfinished, False), (_lie, False)], ids=["keys", "pieces", "lies"]
)
def test_an_attack_goes_on_when_a_connection_is_refused_before_its_message_is_sent(
    attack: Attacking, counts: bool, victim: StolenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = attack_messages.post
    refusals = []

    def late(connection: zmq.Socket[bytes], frames: list[bytes]) -> bool:
        await_condition(LIMIT_S, lambda: not sent(connection, frames))
        refusals.append(connection)
        return False

    monkeypatch.setattr(attack_messages, "post", late)
    effects: list[None] = []
    lasts_s = FIRST_S
    while not refusals or (counts and not effects):
        attack(victim, time.monotonic() + lasts_s, lambda: effects.append(None))
        lasts_s *= 2
    assert bool(effects) is counts


def test_an_attacker_that_fails_ends_the_run_with_its_error(tmp_path: Path) -> None:
    text = 'name = "attacked"\njob = "described"\n[[faults]]\nkind = "attack"\nat = { seconds = 1 }\n'
    (scenario,) = parse_scenarios(text, "attacked.toml")
    (fault,) = scenario.faults
    status = Status("described", Phase.RUNNING)
    attack = Attack(fault, status, os.getpid(), [], tmp_path / "no loot", tmp_path)
    await_condition(scaled(30), lambda: bool(attack.failure()))
    run = ProcessRun(scenario, 1, tmp_path)
    lasting = Lasting(attack.end, counts="attacks", effect_count=attack.effect_count, failure=attack.failure)
    run._ongoing = [Ongoing(fault, Injection(fault.kind, [], 0), lasting, inf)]
    with open(os.devnull, "rb") as nothing:
        run._driver = SimpleNamespace(fileno=nothing.fileno, lines=list, is_at_end=False)  # type: ignore[assignment]
        run.watch()
    attack.end()
    assert run.record.failure.startswith("the attacker has failed: ValueError: ")
