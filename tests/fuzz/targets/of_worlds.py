"""Target: all machines of a job in the simulated world, where every peer may send every message at every moment.

An input is two seeds: of a world, and of the lies in it. Now and then a delivered message is followed by a
lie: a changed copy of a real message. What a machine does later in answer to honest events counts too. The world itself
soon becomes inconsistent; the target leaves it then.
"""

from __future__ import annotations

import traceback
from collections import deque
from pathlib import Path
from random import Random
from typing import Any, Final

from clonos.core import __file__
from clonos.core.coordinator.coordinator_events import Received
from clonos.core.model.errors import EnvironmentFault, JobError, LogDiverged, MessageMalformed, PeerError
from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.slot.slot_events import MessageReceived
from clonos.core.wire.admission import check_for_coordinator
from clonos.core.wire.messages import Message
from clonos_chaos.sim.environment import WorldFailed
from clonos_chaos.swarm.world import World
from tests.fuzz.hostile import Sent, as_sent, hostile, message_of
from tests.fuzz.target import Several, Target

CORE: Final = str(Path(__file__).parent)
DECLARED: Final = (PeerError, EnvironmentFault, JobError, LogDiverged)
"""InternalError is not: a lie is no bug."""

LIES_EACH: Final = 300
LIES_A_MESSAGE: Final = (0.02, 0.1, 0.5)
REMEMBERED: Final = 100
DELIVERED_MAX: Final = 8_000
"""A world that lies have brought to a standstill is left."""
SEED_BYTES: Final = 6
LOOKS: Final = ("dying", "lost", "acknowledged", "completed", "delivered", "look", "judge")
"""What the oracle looks at: it finds contradictions, and lies are some."""


def targets() -> list[Target]:
    """Targets of this file."""
    return [Target("worlds", _made, _live, (), share=1)]


def _made(random: Random) -> bytes:
    return random.randbytes(2 * SEED_BYTES)


class _Over(Exception):
    """As many lies were told as an input has."""


class _World(World):
    def __init__(self, seed: int, random: Random) -> None:
        super().__init__(seed)
        self.random = random
        self.lies = 0
        self.rate = random.choice(LIES_A_MESSAGE)
        self.begins = random.randrange(600)
        for look in LOOKS:
            setattr(self.oracle, look, lambda *_: None)
        self.seen: deque[tuple[SlotId, Message, Any]] = deque(maxlen=REMEMBERED)

    def _deliver(self, sender: SlotId, receiver: SlotId, message: Message, payload: Any) -> None:
        if self.network.delivered > DELIVERED_MAX:
            raise _Over
        super()._deliver(sender, receiver, message, payload)
        self.seen.append((sender, message, payload))
        if self.network.delivered > self.begins and self.random.random() < self.rate:
            self._lie(receiver)

    def fail(self, complaint: str) -> None:
        """Something is wrong with the job: with these messages it may."""

    def _lie(self, receiver: SlotId) -> None:
        samples = [as_sent(*self.random.choice(self.seen)) for _ in range(3)]
        sent = hostile(self.random, samples, [COORDINATOR, 1, *self.slots])
        message = message_of(sent)
        if message is None:
            return
        self.lies += 1
        if self.lies > LIES_EACH:
            raise _Over
        if self.random.random() < 0.3:
            receiver = self.random.choice([COORDINATOR, *self.slots])
        try:
            self._report(SlotId(sent[0]), receiver, message, sent)
        except MessageMalformed:
            return

    def _report(self, sender: SlotId, receiver: SlotId, message: Message, sent: Sent) -> None:
        if receiver != COORDINATOR:
            slot = self.slots.get(receiver)
            if slot is not None and not slot.is_dead:
                slot.handle(MessageReceived(sender, message, sent[2]))
        else:
            check_for_coordinator(self.plan, sender, message)
            self.coordinator.handle(Received(sender, message, self.clock.now_ns))  # type: ignore[arg-type]


def _live(data: bytes) -> Several:
    seeds = [int.from_bytes(data[at : at + SEED_BYTES], "big") for at in (0, SEED_BYTES)]
    world = _World(seeds[0], Random(seeds[1]))
    try:
        world.run()
    except (_Over, WorldFailed, *DECLARED):
        pass
    except Exception as error:
        if traceback.extract_tb(error.__traceback__)[-1].filename.startswith(CORE):
            raise
    return Several(max(1, world.lies))


__all__ = ["targets"]
