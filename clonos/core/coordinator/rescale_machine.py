"""Rescale machine: from the request of other widths to the generation that has them (protocol 6.12).

    Steady ──WidthsAsked──▶ Ordering ──SlotsThere──▶ Warming ──Warmed──▶ Cutting ──CutComplete──▶ Switching
                        └───────GivenUp──────────┴──────────────────┴──▶ Steady ◀──────Settled──────┘

The metadata of the cut, with the widths in it, is the point of no return: nothing gives the rescale up after it. Before
it, whatever goes wrong does, once the cut has its number. Until then no task is affected, so the rescale waits until
what has failed has recovered; ``rescale_timeout`` limits that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from clonos.core.checkpoint.checkpoint_metadata import CheckpointMetadata
from clonos.core.coordinator.checkpoint_machine import RETRY_FIRST_NS
from clonos.core.model.ids import CheckpointId, SlotId
from clonos.core.model.machine import Machine, Table
from clonos.core.wire.control_messages import WarmUp

Widths = tuple[tuple[str, int], ...]
"""Number of tasks of each vertex, by its name, in the order of the plan."""

# ------------------------------------------------------------------ states


@dataclass(frozen=True, slots=True)
class Steady:
    """No widths change. ``request``: the last one, 0 if there was none; ``refusal``: why it came to nothing."""

    request: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Ordering:
    """The slots that the new tasks need are being requested. ``is_placed_anew``: all tasks will be placed anew."""

    request: int
    widths: Widths
    begun_ns: int
    is_placed_anew: bool = False


@dataclass(frozen=True, slots=True)
class WarmUpRound:
    """Requests to slots to read the state of the tasks that will begin there, as of one completed checkpoint.

    ``number``: of the requests. ``completed_ns``: when the checkpoint became complete. ``messages``: by slot.
    """

    number: int
    completed_ns: int
    messages: tuple[tuple[SlotId, WarmUp], ...]


NO_WARM_UPS: Final = WarmUpRound(0, 0, ())


@dataclass(frozen=True, slots=True)
class Warming:
    """The slots read the state of the next tasks while the present ones run.

    ``rounds``: how often they were asked to, each time as of a later checkpoint. ``begun_ns``: since when.
    """

    request: int
    widths: Widths
    begun_ns: int
    is_placed_anew: bool = False
    warm_ups: WarmUpRound = NO_WARM_UPS
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Cutting:
    """Every task is about to be suspended at the barrier of ``checkpoint``, which is 0 until the job is quiet.

    ``begun_ns``: since when that has been so.
    """

    request: int
    widths: Widths
    begun_ns: int
    checkpoint: CheckpointId
    is_triggered: bool
    is_placed_anew: bool = False
    warm_ups: WarmUpRound = NO_WARM_UPS


@dataclass(frozen=True, slots=True)
class Switching:
    """The checkpoint of the cut is complete; the generation with other widths begins, and its tasks recover.

    Before it begins, its state is divided among its tasks: ``attempts`` says how often that has begun. ``retry_ns``:
    when it is tried again; None while an attempt is under way, or has succeeded. ``divided``: the checkpoint with the
    tasks of that generation.
    """

    request: int
    divided: CheckpointMetadata | None = None
    attempts: int = 0
    retry_ns: int | None = 0
    warm_ups: WarmUpRound = NO_WARM_UPS


State = Steady | Ordering | Warming | Cutting | Switching

# ------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class WidthsAsked:
    """Event: other widths are wanted."""

    request: int
    widths: Widths
    awake_ns: int
    is_placed_anew: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Event: a request is refused."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class SlotsThere:
    """Event: there are enough slots."""

    awake_ns: int


@dataclass(frozen=True, slots=True)
class WarmUpsAsked:
    """Event: slots are asked to read the state of the next tasks as of the last completed checkpoint."""

    warm_ups: WarmUpRound


@dataclass(frozen=True, slots=True)
class Warmed:
    """Event: the slots have read that state, or are not waited for any longer."""

    awake_ns: int


@dataclass(frozen=True, slots=True)
class Quiet:
    """Event: nothing else is under way, so that the next checkpoint may be the cut."""

    checkpoint: CheckpointId
    awake_ns: int


@dataclass(frozen=True, slots=True)
class CutKnown:
    """Event: every slot has the view with the cut, so that its checkpoint begins."""


@dataclass(frozen=True, slots=True)
class CutComplete:
    """Event: the metadata of the cut is durable."""


@dataclass(frozen=True, slots=True)
class DivisionAsked:
    """Event: the state of the cut is being divided among the next tasks."""


@dataclass(frozen=True, slots=True)
class Divided:
    """Event: the checkpoint of the cut, with the tasks of the next generation; None: it has to be tried again."""

    metadata: CheckpointMetadata | None
    awake_ns: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Event: something has gone wrong before the metadata was written."""

    reason: str


@dataclass(frozen=True, slots=True)
class Settled:
    """Event: the tasks of the new generation have gone live."""


Event = (
    WidthsAsked
    | Refused
    | SlotsThere
    | WarmUpsAsked
    | Warmed
    | Quiet
    | CutKnown
    | CutComplete
    | DivisionAsked
    | Divided
    | GivenUp
    | Settled
)

# ------------------------------------------------------------------ handlers


def _order(_state: Steady, event: WidthsAsked) -> Ordering:
    return Ordering(event.request, event.widths, event.awake_ns, event.is_placed_anew)


def _refuse(_state: Steady, event: Refused) -> Steady:
    return Steady(event.request, event.reason)


def _warm(state: Ordering, event: SlotsThere) -> Warming:
    return Warming(state.request, state.widths, event.awake_ns, state.is_placed_anew)


def _ask_for_warm_ups(state: Warming, event: WarmUpsAsked) -> Warming:
    return replace(state, warm_ups=event.warm_ups, rounds=state.rounds + 1)


def _begin(state: Warming, event: Warmed) -> Cutting:
    head = state.request, state.widths, event.awake_ns, CheckpointId(0), False
    return Cutting(*head, state.is_placed_anew, state.warm_ups)


def _name_cut(state: Cutting, event: Quiet) -> Cutting:
    return replace(state, checkpoint=event.checkpoint, begun_ns=event.awake_ns)


def _trigger(state: Cutting, _event: CutKnown) -> Cutting:
    return replace(state, is_triggered=True)


def _switch(state: Cutting, _event: CutComplete) -> Switching:
    return Switching(state.request, warm_ups=state.warm_ups)


def _ask_for_division(state: Switching, _event: DivisionAsked) -> Switching:
    return replace(state, attempts=state.attempts + 1, retry_ns=None)


def _divide(state: Switching, event: Divided) -> Switching:
    if event.metadata is None:
        return replace(state, retry_ns=event.awake_ns + (RETRY_FIRST_NS << state.attempts - 1))
    return replace(state, divided=event.metadata)


def _take_over(state: Steady, _event: CutComplete) -> Switching:
    # An earlier coordinator has written the metadata.
    return Switching(state.request)


def _give_up(state: Ordering | Warming | Cutting, event: GivenUp) -> Steady:
    return Steady(state.request, event.reason)


def _settle(state: Switching, _event: Settled) -> Steady:
    return Steady(state.request)


HANDLERS: Table[State] = {
    (Steady, WidthsAsked): _order,
    (Steady, Refused): _refuse,
    (Ordering, SlotsThere): _warm,
    (Warming, WarmUpsAsked): _ask_for_warm_ups,
    (Warming, Warmed): _begin,
    (Cutting, Quiet): _name_cut,
    (Cutting, CutKnown): _trigger,
    (Cutting, CutComplete): _switch,
    (Steady, CutComplete): _take_over,
    (Ordering, GivenUp): _give_up,
    (Warming, GivenUp): _give_up,
    (Cutting, GivenUp): _give_up,
    (Switching, DivisionAsked): _ask_for_division,
    (Switching, Divided): _divide,
    (Switching, Settled): _settle,
}

MACHINE: Machine[State, Event, State] = Machine("rescale machine", HANDLERS)
step = MACHINE.step
