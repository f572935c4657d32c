"""Event time in a chain: where watermarks enter it, and the order in which timers fire (protocol 2).

Steps that a watermark passes at once form a region. It fires the timers of its steps in one order, by (time, index of
the step, registration), and only then passes the watermark on, so the result does not depend on how many watermarks
there are. A step that holds watermarks back ends its region, and the steps behind it form another one.
"""

from __future__ import annotations

from collections.abc import Sequence

from clonos.core.model.watermark import Activity, Watermark
from clonos.operators.operator import Operator


class Region:
    """Steps that a watermark passes at once. ``timed``: those with event-time timers, in the order of the chain."""

    __slots__ = ("_heads", "timed")

    def __init__(self, heads: Sequence[Operator]) -> None:
        self._heads = tuple(heads)
        self.timed: list[Operator] = []

    def advance(self, watermark: Watermark) -> None:
        """Fires the timers that are due, also those set meanwhile, and passes the watermark on."""
        if self.timed and not isinstance(watermark, Activity):
            self._fire(watermark)
        for head in self._heads:
            head.on_watermark(watermark)

    def _fire(self, watermark_ns: int) -> None:
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
            is_span = len(self.timed) == 1 and operator.fires_in_spans
            operator.fire_events(operator.due_events(watermark_ns if is_span else instant_ns))


def regions_of(operators: Sequence[Operator], children: Sequence[Sequence[int]]) -> Region:
    """Cuts a chain into regions; gives each step that holds watermarks back the region behind it.

    Returns the first region, which the watermark of the task enters. ``children`` are the indexes of each step's
    followers, which come behind it; ``out`` of the operators is set.
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
