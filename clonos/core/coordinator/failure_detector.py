"""Failure detector: one small machine per slot, and suspicions between slots (protocol 6).

Times are *waking time* (``WakingClock``), which stands still while the coordinator itself is paused, so that a pause of
the coordinator kills no slot.

    Alive ──connection broke──▶ Suspected ──still silent, or the coordinator's broke too──▶ Dead
      ▲                             │
      └──────message received───────┘
    Alive ──silent for a lease──▶ Dead
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from clonos.core.model.ids import COORDINATOR, SlotId
from clonos.core.model.machine import Machine, Table
from clonos.core.model.options import Options

GRACE_HEARTBEATS = 3
"""Silence, in heartbeats, after which a suspected slot is dead. A living one sends a message before."""

NANOSECONDS = 1_000_000
"""Nanoseconds in a millisecond."""


@dataclass(frozen=True, slots=True)
class DetectorLimits:
    """Durations of failure detection, in ns of waking time."""

    lease_ns: int
    grace_ns: int
    standing_ns: int  # a suspicion that is not repeated within this time expires
    gap_ns_max: int  # a longer gap between two ticks counts as a pause of the coordinator

    @staticmethod
    def of(options: Options) -> DetectorLimits:
        """Returns the durations for a job's options."""
        heartbeat_ns, lease_ns = options.heartbeat_ms * NANOSECONDS, options.lease_ms * NANOSECONDS
        return DetectorLimits(
            lease_ns=lease_ns,
            grace_ns=min(GRACE_HEARTBEATS * heartbeat_ns, lease_ns),
            standing_ns=max(5 * heartbeat_ns, lease_ns // 4),
            gap_ns_max=max(2 * heartbeat_ns, lease_ns // 4),
        )


@dataclass(frozen=True, slots=True)
class WakingClock:
    """Clock of the time in which the coordinator was awake. A gap between two ticks counts up to a limit only."""

    awake_ns: int = 0
    ticked_ns: int | None = None

    def tick(self, now_ns: int, gap_ns_max: int) -> WakingClock:
        """Returns the clock after a tick. The first tick starts it, and a wall clock that was set back adds nothing."""
        gap_ns = 0 if self.ticked_ns is None else min(max(now_ns - self.ticked_ns, 0), gap_ns_max)
        return WakingClock(self.awake_ns + gap_ns, now_ns)


# ------------------------------------------------------------------ states of a slot's life


class Alive(msgspec.Struct, frozen=True):
    """State of a slot that sent a message within its lease."""

    last_message_ns: int


@dataclass(frozen=True, slots=True)
class Suspected:
    """State of a slot after a connection to it broke, until its next message."""

    last_message_ns: int
    since_ns: int
    witness: SlotId  # slot or coordinator whose connection broke


@dataclass(frozen=True, slots=True)
class Dead:
    """State of a slot whose process has ended, or is treated as ended.

    It is final, because every process draws a new slot id.
    """

    reason: str


Life = Alive | Suspected | Dead
S = TypeVar("S", bound=Life)

# ------------------------------------------------------------------ events of a slot's life


class MessageArrived(msgspec.Struct, frozen=True):
    """Event: a message of the slot arrived."""

    awake_ns: int


@dataclass(frozen=True, slots=True)
class Broke:
    """Event: the connection of ``witness`` to the slot broke."""

    awake_ns: int
    witness: SlotId


@dataclass(frozen=True, slots=True)
class DetectorTick:
    """Event: time has passed."""

    awake_ns: int
    limits: DetectorLimits


@dataclass(frozen=True, slots=True)
class Ended:
    """Event: the slot is dead, for certain or by decision."""

    reason: str


Event = MessageArrived | Broke | DetectorTick | Ended

# ------------------------------------------------------------------ handlers


def _stay(state: S, _event: Any) -> S:
    return state


def _on_message(_state: Alive | Suspected, event: MessageArrived) -> Alive:
    return Alive(event.awake_ns)


def _suspect(state: Alive, event: Broke) -> Suspected:
    return Suspected(state.last_message_ns, event.awake_ns, event.witness)


def _believe_second_witness(state: Suspected, event: Broke) -> Suspected | Dead:
    # Two peers may share one broken switch, so the coordinator's own connection must be among the broken ones.
    if event.witness == state.witness or COORDINATOR not in (event.witness, state.witness):
        return state
    return Dead("its connections to the coordinator and to a peer broke")


def _check_lease(state: Alive, event: DetectorTick) -> Alive | Dead:
    silent_ns = event.awake_ns - state.last_message_ns
    if silent_ns < event.limits.lease_ns:
        return state
    return Dead(f"it has been silent for {silent_ns // NANOSECONDS} ms, its lease")


def _check_grace(state: Suspected, event: DetectorTick) -> Suspected | Dead:
    limits = event.limits
    if event.awake_ns - state.since_ns < limits.grace_ns and event.awake_ns - state.last_message_ns < limits.lease_ns:
        return state
    return Dead("a connection to it broke and it has been silent since")


def _end(_state: Life, event: Ended) -> Dead:
    return Dead(event.reason)


HANDLERS: Table[Life] = {
    (Alive, MessageArrived): _on_message,
    (Alive, Broke): _suspect,
    (Alive, DetectorTick): _check_lease,
    (Alive, Ended): _end,
    (Suspected, MessageArrived): _on_message,
    (Suspected, Broke): _believe_second_witness,
    (Suspected, DetectorTick): _check_grace,
    (Suspected, Ended): _end,
    (Dead, MessageArrived): _stay,  # a paused process may resume after its replacement started
    (Dead, Broke): _stay,
    (Dead, DetectorTick): _stay,
    (Dead, Ended): _stay,
}


MACHINE: Machine[Life, Event, Life] = Machine("failure detector", HANDLERS)
step = MACHINE.step


# ------------------------------------------------------------------ mutual suspicions


@dataclass(frozen=True, slots=True)
class SuspicionSpan:
    """Suspicion of ``suspect`` by another slot: when it was first and last reported, in waking ns."""

    first_ns: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class MutualSuspicions:
    """Suspicions between slots that are both alive to the coordinator.

    After a lease of repeated reports one slot is replaced.
    """

    standing: dict[tuple[SlotId, SlotId], SuspicionSpan] = field(default_factory=dict)  # never mutated

    def suspect(self, reporter: SlotId, suspect: SlotId, awake_ns: int) -> MutualSuspicions:
        """Returns the suspicions after a new or a repeated one."""
        before = self.standing.get((reporter, suspect))
        first_ns = awake_ns if before is None else before.first_ns
        return MutualSuspicions({**self.standing, (reporter, suspect): SuspicionSpan(first_ns, awake_ns)})

    def forget(self, slot: SlotId) -> MutualSuspicions:
        """Returns the suspicions without those of a dead slot."""
        return MutualSuspicions({pair: suspect for pair, suspect in self.standing.items() if slot not in pair})

    def expire(self, awake_ns: int, limits: DetectorLimits) -> MutualSuspicions:
        """Returns the suspicions without those that were not repeated in time."""
        fresh = {p: a for p, a in self.standing.items() if awake_ns - a.last_ns <= limits.standing_ns}
        return self if len(fresh) == len(self.standing) else MutualSuspicions(fresh)

    def loser(self, limits: DetectorLimits) -> SlotId | None:
        """Returns the slot to replace, if any: in a suspicion as old as a lease, most suspected, then of the highest
        id.
        """
        ripe = [
            pair for pair, suspect in self.standing.items() if suspect.last_ns - suspect.first_ns >= limits.lease_ns
        ]
        if not ripe:
            return None
        reporters: dict[SlotId, int] = {}
        for _, suspected_slot in self.standing:
            reporters[suspected_slot] = reporters.get(suspected_slot, 0) + 1
        return max((slot for pair in ripe for slot in pair), key=lambda slot: (reporters.get(slot, 0), slot))
