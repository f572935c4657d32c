"""Attacking process: ``python -m clonos_chaos.attacks.attacker SPEC``. It reports the number of attacks by weapon.

It has its own limit of file descriptors, and ends when its standard input is closed.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from clonos.core.model.ids import COORDINATOR
from clonos.io.net.curve import new_keys
from clonos_chaos.attacks.attack_keys import Loot, StolenPeer, read_loot
from clonos_chaos.attacks.attack_lies import AttackedJob
from clonos_chaos.attacks.attack_messages import flood, lie, refused, unfinished
from clonos_chaos.attacks.attack_sockets import crowd, half_handshakes, long_frames
from clonos_chaos.scenario.scenario import Weapon

FILES_OF_OURS: Final = 200
"""File descriptors of the attacker besides its connections."""

NICE: Final = 10
"""Nice level: the attack must not succeed by taking the processor."""

FULL_TABLE_AT_ONCE: Final = 2_000
"""Connections: more than a driver without free files accepts and its backlog holds."""

A_SLOT_S: Final = 0.5
Count = Callable[[], None]
AttackFunction = Callable[[float, Count], None]


class AttackOrders(msgspec.Struct, frozen=True):
    """Orders of an attack. ``at_once``: connections that a crowd may keep open."""

    weapons: list[Weapon]
    seconds: float
    connections: int
    at_once: int
    ports: list[int]
    driver_ports: list[int]
    job: AttackedJob
    loot: str
    counts: str


def _attack_functions(orders: AttackOrders) -> dict[Weapon, AttackFunction]:
    everywhere = [f"tcp://127.0.0.1:{port}" for port in orders.ports]
    loot = _best(read_loot(Path(orders.loot)))
    driver = loot.peers[COORDINATOR]

    def full_table(until_s: float, count: Count) -> None:
        crowd(orders.driver_ports, until_s, orders.connections, FULL_TABLE_AT_ONCE, count)

    def wrong_keys(until_s: float, count: Count) -> None:
        middle_s = (time.monotonic() + until_s) / 2
        refused(everywhere, middle_s, new_keys().public, count)
        for slot in _slots(loot):
            addresses = [slot.control_address, slot.data_address]
            refused(addresses, min(until_s, time.monotonic() + A_SLOT_S), slot.public_key, count)

    return {
        Weapon.NO_KEYS: partial(_refused_without_keys, everywhere),
        Weapon.WRONG_KEYS: wrong_keys,
        Weapon.HALF_HANDSHAKES: partial(half_handshakes, orders.ports),
        Weapon.LONG_FRAMES: partial(long_frames, orders.ports),
        Weapon.CROWD: lambda until_s, count: crowd(orders.ports, until_s, orders.connections, orders.at_once, count),
        Weapon.FULL_TABLE: full_table,
        Weapon.FLOOD: partial(flood, driver, loot),
        Weapon.UNFINISHED: partial(unfinished, loot),
        Weapon.LIAR: partial(lie, loot, orders.job),
    }


def _refused_without_keys(addresses: list[str], until_s: float, count: Count) -> None:
    refused(addresses, until_s, b"", count)


def _best(loots: list[Loot]) -> Loot:
    return max(loots, key=lambda loot: len(loot.peers))


def _slots(loot: Loot) -> list[StolenPeer]:
    return [peer for peer in loot.peers.values() if peer.slot != COORDINATOR]


def main() -> None:
    """Attacks with each weapon in turn, for an equal share of the time, and longer while a weapon has had no effect."""
    orders = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=AttackOrders)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = orders.at_once + FILES_OF_OURS
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    os.nice(NICE)
    faulthandler.register(signal.SIGUSR1)
    threading.Thread(target=_end_with_the_runner, name="end with the runner", daemon=True).start()
    attack_functions = _attack_functions(orders)
    with open(orders.counts, "w", encoding="ascii") as counts:
        for weapon in orders.weapons:
            counted = [0]

            def count(counted: list[int] = counted) -> None:
                counted[0] += 1

            attack_functions[weapon](time.monotonic() + orders.seconds / len(orders.weapons), count)
            more_s = A_SLOT_S
            while not counted[0]:
                attack_functions[weapon](time.monotonic() + more_s, count)
                more_s *= 2  # on a busy machine a weapon takes long to have its first effect
            counts.write(f"{weapon} {counted[0]}\n")
            counts.flush()


def _end_with_the_runner() -> None:
    while os.read(sys.stdin.fileno(), 100):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
