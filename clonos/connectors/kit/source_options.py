"""Options that sources of brokers share: where they end, and the timestamps that messages bring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos.connectors.connector_errors import InvalidConnector
from clonos.operators.event_time.durations import Duration
from clonos.operators.event_time.stamped_records import stamp_of

if TYPE_CHECKING:
    from clonos.api.event_time import Timestamps


def is_bounded(connector: str, until: str | None, end: str) -> bool:
    """Returns whether a source ends; ``end`` is the only value of ``until`` for which it does.

    Raises: InvalidConnector: it has another value.
    """
    if until not in (None, end):
        raise InvalidConnector(connector, f"until is {until!r:.80}", f'Give "{end}" or None.')
    return until is not None


def own_timestamps(connector: str, out_of_order: Duration | None, idle_after: Duration | None) -> Timestamps | None:
    """Returns how records get the timestamps of their messages, in nanoseconds; None if they do not.

    Raises: InvalidConnector: one option does not go without the other.
    """
    from clonos.api.event_time import Timestamps

    if out_of_order is not None:
        return Timestamps(stamp_of, unit="ns", out_of_order=out_of_order, idle_after=idle_after)
    if idle_after is not None:
        raise InvalidConnector(connector, "idle_after without out_of_order", "Give out_of_order=, such as '5s', too.")
    return None
