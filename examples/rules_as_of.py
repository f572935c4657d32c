"""Check each payment by the rule that was valid at its time, whichever of both arrives first.

Rules reach all tasks, with the time from which they hold. A payment waits in the state of its card until every rule of
its time has come: until an event-time timer fires one microsecond after it.

    clonos run examples/rules_as_of.py
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from clonos import Job, ListState, MapState, Timestamps, TwoInputContext, stdout, values

DEFAULT_LIMIT = 1_000
MICROSECOND = timedelta(microseconds=1)

RULES = [
    {"at": "2023-05-01T09:00:00Z", "country": "de", "limit": 500},
    {"at": "2023-05-01T11:00:00Z", "country": "de", "limit": 50},
    {"at": "2023-05-01T10:00:00Z", "country": "fr", "limit": 2_000},
]
PAYMENTS = [
    {"id": 1, "at": "2023-05-01T08:59:59Z", "card": "a", "country": "de", "amount": 600},
    {"id": 2, "at": "2023-05-01T10:30:00Z", "card": "a", "country": "de", "amount": 600},
    {"id": 3, "at": "2023-05-01T10:10:00Z", "card": "b", "country": "fr", "amount": 1_500},
    {"id": 4, "at": "2023-05-01T11:00:00Z", "card": "b", "country": "de", "amount": 60},
    {"id": 5, "at": "2023-05-01T09:50:00Z", "card": "a", "country": "fr", "amount": 1_500},
    {"id": 6, "at": "2023-05-01T10:59:59Z", "card": "b", "country": "de", "amount": 60},
]

Row = dict[str, Any]


def time_of(row: Row) -> datetime:
    return datetime.fromisoformat(row["at"])


class Check:
    """Passes on payments above the limit of their country at their time."""

    waiting = ListState[Row]("waiting")
    limits = MapState[str, dict[datetime, int]]("limits")

    def process_first(self, payment: Row, context: TwoInputContext[str, Row]) -> None:
        context.state(self.waiting).append(payment)
        context.set_event_timer(time_of(payment) + MICROSECOND)

    def process_second(self, rule: Row, context: TwoInputContext[str, Row]) -> None:
        limits = context.broadcast_state(self.limits)
        limits[rule["country"]] = {**limits.get(rule["country"], {}), time_of(rule): rule["limit"]}

    def on_event_timer(self, timestamp: datetime, context: TwoInputContext[str, Row]) -> None:
        waiting = context.state(self.waiting)
        due = [payment for payment in waiting if time_of(payment) < timestamp]
        waiting[:] = [payment for payment in waiting if time_of(payment) >= timestamp]
        for payment in due:
            limits = context.broadcast_state(self.limits).get(payment["country"], {})
            valid = max((start for start in limits if start < timestamp), default=None)
            limit = DEFAULT_LIMIT if valid is None else limits[valid]
            if payment["amount"] > limit:
                context.emit({**payment, "limit": limit})


job = Job("rules_as_of", parallelism=2, checkpoint_every="1s")
times = Timestamps("at", out_of_order="3h")
rules = job.source(values(RULES), name="rules", timestamps=times)
payments = job.source(values(PAYMENTS), name="payments", timestamps=times).key_by("card")
payments.connect(rules.broadcast()).process(Check, name="check").sink(stdout(), name="alerts")
