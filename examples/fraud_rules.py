"""Check payments against rules that change while the job runs.

Gives the payments above the limit of their country. Rules are a stream of their own: each of them reaches all tasks,
and a payment is checked by the rules that have come before it.

    clonos run examples/fraud_rules.py
"""

from __future__ import annotations

from typing import Any

from clonos import Job, MapState, TwoInputContext, ValueState, stdout, values

DEFAULT_LIMIT = 1_000

PAYMENTS = [
    {"card": f"card {n % 5}", "country": ("de", "fr", "it")[n % 3], "amount": 40 * n, "id": n} for n in range(60)
]
RULES = [{"country": "de", "limit": 500}, {"country": "fr", "limit": 2_000}, {"country": "de", "limit": 700}]

Row = dict[str, Any]


class Check:
    """Passes on payments above the limit, with the number of suspicious payments of their card."""

    limits = MapState[str, int]("limits")
    suspicious = ValueState[int]("suspicious", default=0)

    def process_first(self, payment: Row, context: TwoInputContext[str, Row]) -> None:
        limit = context.broadcast_state(self.limits).get(payment["country"], DEFAULT_LIMIT)
        if payment["amount"] > limit:
            context.state(self.suspicious).value += 1
            context.emit({**payment, "suspicious": context.state(self.suspicious).value})

    def process_second(self, rule: Row, context: TwoInputContext[str, Row]) -> None:
        context.broadcast_state(self.limits)[rule["country"]] = rule["limit"]


job = Job("fraud_rules", parallelism=2, checkpoint_every="1s")
rules = job.source(values(RULES), name="rules", parallelism=1)
payments = job.source(values(PAYMENTS), name="payments", parallelism=1).key_by("card")
payments.connect(rules.broadcast()).process(Check, name="check").sink(stdout(), name="alerts")
