"""Event time in a chain: where watermarks enter it, and the order in which timers fire (protocol 2).

Steps that a watermark passes at once form a region. It fires the timers of its steps in one order, by (time, index of
the step, registration), and only then passes the watermark on, so the result does not depend on how many watermarks
there are. A step that holds watermarks back ends its region, and the steps after it form another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clonos.core.model.errors import JobError
from clonos.core.model.watermark import Activity, Watermark
from clonos.operators.operator import Operator

ROUNDS_MAX: Final = 100_000
"""Times in a row that timers may fire at one watermark without a later instant than before."""


class TimersRepeat(JobError):
    """Event-time timers set each other at instants that have passed, without an end."""

    step: str
    rounds: int

    def __str__(self) -> str:
        return (
            f"the step {self.step} has set event-time timers at or before the timer that fires {self.rounds:,} times in"
            " a row, each of which fires at once. Set the next one later, as in context.set_event_timer(timestamp +"
            " timedelta(seconds=10))."
        )


class Region:
    """Steps that a watermark passes at once. ``timed``: those with event-time timers, in the order of the chain."""

    __slots__ = ("_heads", "timed")

    def __init__(self, heads: Sequence[Operator]) -> None:
        self._heads = tuple(heads)
        self.timed: list[Operator] = []

    def advance(self, watermark: Watermark) -> None:
        """Fires the timers that are due, also those set meanwhile, and passes the watermark on.

        Raises: TimersRepeat: timers set each other without an end.
        """
        if self.timed and not isinstance(watermark, Activity):
            self._fire(watermark)
        for head in self._heads:
            head.on_watermark(watermark)

    def _fire(self, watermark_ns: int) -> None:
        latest_ns: int | None = None
        rounds = 0
        while True:
            instants = [
                (instant_ns, index)
                for index, operator in enumerate(self.timed)
                if (instant_ns := operator.next_event_ns()) is not None
            ]
            instant_ns, index = min(instants, default=(watermark_ns + 1, 0))
            if instant_ns > watermark_ns:
                return
            operator = self.timed[index]
            if latest_ns is None or instant_ns > latest_ns:
                latest_ns, rounds = instant_ns, 0
            elif (rounds := rounds + 1) > ROUNDS_MAX:
                raise TimersRepeat(operator.guard.step, ROUNDS_MAX)
            is_span = len(self.timed) == 1 and operator.fires_in_spans
            operator.fire_events(operator.due_events(watermark_ns if is_span else instant_ns))


def regions_of(operators: Sequence[Operator], children: Sequence[Sequence[int]]) -> Region:
    """Cuts a chain into regions; gives each step that holds watermarks back the region after it.

    Returns the first region, which the watermark of the task enters. ``children`` are the indexes of each step's
    followers, which come after it; ``out`` of the operators is set.
    """
    followers = {child for each in children for child in each}
    first = Region([operator for index, operator in enumerate(operators) if index not in followers])
    region_of: dict[int, Region] = {}
    for index, operator in enumerate(operators):
        region = region_of.get(index, first)
        if operator.has_event_timers:
            region.timed.append(operator)
        if operator.holds_watermarks:
            region = Region([operator.out])
            operator.pass_watermark = region.advance
        region_of.update(dict.fromkeys(children[index], region))
    return first
