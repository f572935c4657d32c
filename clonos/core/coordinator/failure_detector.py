"""Who is alive: one small machine for each slot, and one for the quarrels between slots that cannot reach each other.

Time here is *waking time* (``WakingClock``): it stands still while the coordinator itself is paused, so that such a
pause kills nobody.

    Alive ──connection broke──▶ Doubted ──still silent, or the coordinator's broke too──▶ Gone
      ▲                            │
      └──────────heard─────────────┘
    Alive ──silent for a lease──▶ Gone
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.model.machine import Machine, Table
from clonos.core.model.options import Options

GRACE_HEARTBEATS = 3
"""A slot whose connection to somebody broke and that is silent for so long is gone; a living one is heard before."""

NANOSECONDS = 1_000_000
"""In a millisecond."""


@dataclass(frozen=True, slots=True)
class DetectorLimits:
    """Durations of liveness, in waking ns."""

    lease_ns: int
    grace_ns: int
    standing_ns: int  # an accusation that is not repeated for so long does not stand any more
    gap_ns_max: int  # a longer gap between two ticks is a pause of the coordinator itself

    @staticmethod
    def of(options: Options) -> DetectorLimits:
        """From the job's options."""
        heartbeat_ns, lease_ns = options.heartbeat_ms * NANOSECONDS, options.lease_ms * NANOSECONDS
        return DetectorLimits(
            lease_ns=lease_ns,
            grace_ns=min(GRACE_HEARTBEATS * heartbeat_ns, lease_ns),
            standing_ns=max(5 * heartbeat_ns, lease_ns // 4),
            gap_ns_max=max(2 * heartbeat_ns, lease_ns // 4),
        )


@dataclass(frozen=True, slots=True)
class WakingClock:
    """Counts the time in which the coordinator was awake: a gap between two ticks counts up to a limit only."""

    awake_ns: int = 0
    ticked_ns: int | None = None

    def tick(self, now_ns: int, gap_ns_max: int) -> WakingClock:
        """After a tick. The first one starts the clock; a clock that was set back counts nothing."""
        gap_ns = 0 if self.ticked_ns is None else min(max(now_ns - self.ticked_ns, 0), gap_ns_max)
        return WakingClock(self.awake_ns + gap_ns, now_ns)


# ------------------------------------------------------------------ states of a slot's life


class Alive(msgspec.Struct, frozen=True):
    """Heard within its lease."""

    heard_ns: int


@dataclass(frozen=True, slots=True)
class Suspected:
    """A connection to it broke and it has not been heard since."""

    heard_ns: int
    since_ns: int
    witness: SlotId  # who saw the connection break


@dataclass(frozen=True, slots=True)
class Dead:
    """Its process has ended, or is treated as if it had. For ever: a slot draws its id at birth."""

    reason: str


Life = Alive | Suspected | Dead
S = TypeVar("S", bound=Life)

# ------------------------------------------------------------------ events of a slot's life


class HeardFrom(msgspec.Struct, frozen=True):
    """Any message of it arrived."""

    awake_ns: int


@dataclass(frozen=True, slots=True)
class Broke:
    """``witness`` saw its connection to the slot break."""

    awake_ns: int
    witness: SlotId


@dataclass(frozen=True, slots=True)
class DetectorTick:
    """Time has passed."""

    awake_ns: int
    limits: DetectorLimits


@dataclass(frozen=True, slots=True)
class Ended:
    """It is certain, or decided, that it is gone."""

    reason: str


Event = HeardFrom | Broke | DetectorTick | Ended

# ------------------------------------------------------------------ handlers


def _stay(state: S, _event: Any) -> S:
    return state


def _hear(_state: Alive | Suspected, event: HeardFrom) -> Alive:
    return Alive(event.awake_ns)


def _doubt(state: Alive, event: Broke) -> Suspected:
    return Suspected(state.heard_ns, event.awake_ns, event.witness)


def _believe_second_witness(state: Suspected, event: Broke) -> Suspected | Dead:
    # Two peers may sit behind one broken switch; the coordinator's own connection must be among the broken ones.
    if event.witness == state.witness or COORDINATOR not in (event.witness, state.witness):
        return state
    return Dead("its connections to the coordinator and to a peer broke")


def _check_lease(state: Alive, event: DetectorTick) -> Alive | Dead:
    silent_ns = event.awake_ns - state.heard_ns
    if silent_ns < event.limits.lease_ns:
        return state
    return Dead(f"it has been silent for {silent_ns // NANOSECONDS} ms, its lease")


def _check_grace(state: Suspected, event: DetectorTick) -> Suspected | Dead:
    limits = event.limits
    if event.awake_ns - state.since_ns < limits.grace_ns and event.awake_ns - state.heard_ns < limits.lease_ns:
        return state
    return Dead("a connection to it broke and it has been silent since")


def _end(_state: Life, event: Ended) -> Dead:
    return Dead(event.reason)


HANDLERS: Table[Life] = {
    (Alive, HeardFrom): _hear,
    (Alive, Broke): _doubt,
    (Alive, DetectorTick): _check_lease,
    (Alive, Ended): _end,
    (Suspected, HeardFrom): _hear,
    (Suspected, Broke): _believe_second_witness,
    (Suspected, DetectorTick): _check_grace,
    (Suspected, Ended): _end,
    (Dead, HeardFrom): _stay,  # a paused process wakes up after its replacement runs
    (Dead, Broke): _stay,
    (Dead, DetectorTick): _stay,
    (Dead, Ended): _stay,
}


MACHINE: Machine[Life, Event, Life] = Machine("failure detector", HANDLERS)
step = MACHINE.step


# ------------------------------------------------------------------ quarrels


@dataclass(frozen=True, slots=True)
class Accused:
    """``accuser`` cannot reach ``suspect``: since when, and when it said so last. Waking ns."""

    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class MutualSuspicions:
    """Who accuses whom. Both are alive to the coordinator; after a lease of repeated accusation one is replaced."""

    standing: dict[tuple[SlotId, SlotId], Accused] = field(default_factory=dict)  # never altered

    def suspect(self, accuser: SlotId, suspect: SlotId, awake_ns: int) -> MutualSuspicions:
        """After an accusation, or its repetition."""
        before = self.standing.get((accuser, suspect))
        first_ns = awake_ns if before is None else before.first_ns
        return MutualSuspicions({**self.standing, (accuser, suspect): Accused(first_ns, awake_ns)})

    def forget(self, slot: SlotId) -> MutualSuspicions:
        """After a slot is gone: its quarrels are over."""
        return MutualSuspicions({pair: suspect for pair, suspect in self.standing.items() if slot not in pair})

    def expire(self, awake_ns: int, limits: DetectorLimits) -> MutualSuspicions:
        """After time has passed: accusations that are not repeated do not stand any more."""
        fresh = {p: a for p, a in self.standing.items() if awake_ns - a.last_ns <= limits.standing_ns}
        return self if len(fresh) == len(self.standing) else MutualSuspicions(fresh)

    def loser(self, limits: DetectorLimits) -> SlotId | None:
        """Who is to be replaced, if anybody: of those in a ripe quarrel the one accused by most, then the higher id."""
        ripe = [
            pair for pair, suspect in self.standing.items() if suspect.last_ns - suspect.first_ns >= limits.lease_ns
        ]
        if not ripe:
            return None
        accusers: dict[SlotId, int] = {}
        for _, suspected_slot in self.standing:
            accusers[suspected_slot] = accusers.get(suspected_slot, 0) + 1
        return max((slot for pair in ripe for slot in pair), key=lambda slot: (accusers.get(slot, 0), slot))
