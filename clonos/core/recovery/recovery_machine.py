"""Recovery of an incarnation until it is live: one table, ``(State, Event) -> handler`` (protocol 6).

Starting is recovering from nothing: at the job's start nobody is asked and the log is empty.

    Recovering ──▶ Connecting ──▶ Replaying ──▶ Live
                                      │          ▲
                                      ├──▶ Stalled (to Live or Lost)
                                      ▼
                                     Lost, also from any state but Recovering when its journal is lost or it is fenced
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from clonos.core.channel.sender import Behind
from clonos.core.model.ids import ChannelId, Incarnation, TaskId
from clonos.core.model.machine import Machine, Table
from clonos.core.model.progress import TaskPhase
from clonos.core.recovery.gathering import Gathering
from clonos.core.wire.recovery_messages import JournalLost, LogLost, SinkFenced

# ------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class Recovering:
    """Gathers the log while the state is being restored."""

    gathering: Gathering
    is_restored: bool


@dataclass(frozen=True, slots=True)
class Connecting:
    """Has state and log; waits for the high-water mark of each receiver, external systems included."""


@dataclass(frozen=True, slots=True)
class Replaying:
    """The task follows its log."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """The log has ended behind the high-water mark of a receiver that is being replaced.

    The mark of its successor may be lower.
    """

    positions: tuple[tuple[ChannelId, int], ...]


@dataclass(frozen=True, slots=True)
class Live:
    """The task records new determinants."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that it needs is lost, or another incarnation has taken its place; only the coordinator can help."""

    cause: Behind | JournalMissing | IncarnationFenced


State = Recovering | Connecting | Replaying | Stalled | Live | Lost

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Gathered:
    """The gathering has moved on."""

    gathering: Gathering


@dataclass(frozen=True, slots=True)
class Restored:
    """State is there as of the checkpoint that the view names."""


@dataclass(frozen=True, slots=True)
class HandshakesReceived:
    """A receiver has sent its handshake; ``is_missing``: another one has not yet."""

    is_missing: bool


@dataclass(frozen=True, slots=True)
class LogEnded:
    """The task needs a determinant beyond its log, at these output positions.

    ``behind``: what is behind the high-water mark of a live receiver. ``is_awaiting``: some channel is behind the
    high-water mark of a receiver that is being replaced.
    """

    positions: tuple[tuple[ChannelId, int], ...]
    behind: Behind | None
    is_awaiting: bool


@dataclass(frozen=True, slots=True)
class JournalMissing:
    """The log of a source reads what its journal does not have."""


@dataclass(frozen=True, slots=True)
class IncarnationFenced:
    """The external system refuses this incarnation, because it has registered a later one."""

    generation: int
    incarnation: Incarnation


Event = Gathered | Restored | HandshakesReceived | LogEnded | JournalMissing | IncarnationFenced

# ------------------------------------------------------------------ effects


@dataclass(frozen=True, slots=True)
class Connect:
    """Adopt the logs, send handshakes to the inputs, register with the external system."""

    gathering: Gathering


@dataclass(frozen=True, slots=True)
class Start:
    """Start the task: it follows its log."""


@dataclass(frozen=True, slots=True)
class GoLive:
    """The task may record new determinants."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Compare positions and high-water marks again: send ``LogEnded``."""

    positions: tuple[tuple[ChannelId, int], ...]


@dataclass(frozen=True, slots=True)
class ReportLost:
    """Tell the coordinator."""


Effect = Connect | Start | GoLive | Compare | ReportLost
S = TypeVar("S", bound=State)
Next = tuple[S, tuple[Effect, ...]]
Step = Next[State]

# ------------------------------------------------------------------ handlers


def _stay(state: S, _event: Event) -> Next[S]:
    return state, ()


def _gather(state: Recovering, event: Gathered) -> Next[Recovering | Connecting]:
    return _connect_when_ready(Recovering(event.gathering, state.is_restored))


def _restore(state: Recovering, _event: Restored) -> Next[Recovering | Connecting]:
    return _connect_when_ready(Recovering(state.gathering, True))


def _connect_when_ready(state: Recovering) -> Next[Recovering | Connecting]:
    # A task that is still gathering sends no handshake: its high-water mark would be too low.
    if state.is_restored and state.gathering.is_complete:
        return Connecting(), (Connect(state.gathering),)
    return state, ()


def _start_when_connected(state: Connecting, event: HandshakesReceived) -> Next[Connecting | Replaying]:
    if event.is_missing:
        return state, ()
    return Replaying(), (Start(),)


def _end_log(_state: Replaying | Stalled, event: LogEnded) -> Next[Live | Stalled | Lost]:
    if event.behind is not None:
        return Lost(event.behind), (ReportLost(),)
    if event.is_awaiting:
        return Stalled(event.positions), ()
    return Live(), (GoLive(),)


def _compare_again(state: Stalled, _event: HandshakesReceived) -> Next[Stalled]:
    return state, (Compare(state.positions),)


def _lose_journal(_state: Replaying, event: JournalMissing) -> Next[Lost]:
    return Lost(event), (ReportLost(),)


def _fence(_state: Connecting | Replaying | Stalled | Live, event: IncarnationFenced) -> Next[Lost]:
    # A view that ends this incarnation is on its way. If nobody alive knows of one, only the coordinator can help.
    return Lost(event), (ReportLost(),)


HANDLERS: Table[Step] = {
    (Recovering, Gathered): _gather,
    (Recovering, Restored): _restore,
    (Recovering, HandshakesReceived): _stay,  # receivers send them as soon as they know the view
    (Connecting, HandshakesReceived): _start_when_connected,
    (Connecting, Gathered): _stay,
    (Replaying, HandshakesReceived): _stay,
    (Replaying, LogEnded): _end_log,
    (Replaying, JournalMissing): _lose_journal,
    (Stalled, HandshakesReceived): _compare_again,
    (Stalled, LogEnded): _end_log,
    (Live, HandshakesReceived): _stay,
    (Live, LogEnded): _stay,
    (Lost, HandshakesReceived): _stay,
    (Lost, LogEnded): _stay,  # it was fenced in mid-replay
    (Lost, JournalMissing): _stay,
    (Connecting, IncarnationFenced): _fence,
    (Replaying, IncarnationFenced): _fence,
    (Stalled, IncarnationFenced): _fence,
    (Live, IncarnationFenced): _fence,
    (Lost, IncarnationFenced): _stay,
}


MACHINE: Machine[State, Event, Step] = Machine("recovery of a task", HANDLERS)
step = MACHINE.step


def phase_of(state: State) -> TaskPhase:
    """The state as a status names it."""
    match state:
        case Recovering():
            return TaskPhase.RECOVERING
        case Connecting():
            return TaskPhase.CONNECTING
        case Replaying():
            return TaskPhase.REPLAYING
        case Stalled():
            return TaskPhase.STALLED
        case Live():
            return TaskPhase.LIVE
        case Lost():
            return TaskPhase.LOST


def report_of(task: TaskId, incarnation: Incarnation, lost: Lost) -> LogLost | JournalLost | SinkFenced:
    """Returns what the coordinator is told of a lost incarnation."""
    match lost.cause:
        case Behind(channel, position, received_up_to):
            return LogLost(task, incarnation, channel, position, received_up_to)
        case JournalMissing():
            return JournalLost(task, incarnation)
        case IncarnationFenced(generation, by):
            return SinkFenced(task, incarnation, generation, by)
