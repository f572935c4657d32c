"""Refund returned orders; a person approves each large refund, which may take days, and each order is refunded once.

The shop says what an order is worth. Above 100 euros the function of a customer awaits an answer: meanwhile no call is
open, and the tickets of other customers go on. With the answer it begins again, gets the price that it had asked for
from its records, and pays. The state of a customer is what was refunded so far, at most 150 euros without an approval.

    python examples/shop_server.py &
    clonos run examples/refund_approvals.py

Answers are a list here. In production they come from a topic, a table or a webhook (`webhooks.py`).
"""

from __future__ import annotations

from typing import Any

from clonos import Event, Job, await_event, files, http, values

TICKETS = [
    {"customer": "ann", "order": "o1", "product": "tea"},
    {"customer": "bob", "order": "o2", "product": "peppermint-tea"},
    {"customer": "ann", "order": "o3", "product": "gingerbread-house"},
    {"customer": "eve", "order": "o4", "product": "silver-samovar"},
    {"customer": "bob", "order": "o5", "product": "mint"},
    {"customer": "ann", "order": "o6", "product": "cocoa"},
]
ANSWERS = [
    {"customer": "eve", "order": "o4", "says": "no"},
    {"customer": "bob", "order": "o2", "says": "yes"},
    {"customer": "ann", "order": "o6", "says": "no"},
    {"customer": "ann", "order": "o3", "says": "yes"},
    {"customer": "bob", "order": "o5", "says": "yes"},
]
ASK_ABOVE = 100.0
ASK_ABOVE_IN_ALL = 150.0

Ticket = dict[str, Any]
shop = http.session(base_url="http://localhost:8099", timeout=2, retries=2)


def approval_of(row: dict[str, Any]) -> str:
    return f"approval of {row['order']}"  # an answer that comes twice approves no other ticket


def refund(customer: str, refunded: float | None, ticket: Ticket) -> tuple[float, Ticket]:
    euros = shop.get(f"/prices/{ticket['product']}").raise_for_status().json()["price"]
    total = (refunded or 0.0) + euros
    if (euros > ASK_ABOVE or total > ASK_ABOVE_IN_ALL) and await_event(approval_of(ticket))["says"] != "yes":
        return refunded or 0.0, {**ticket, "euros": 0.0, "receipt": None}
    paid = shop.post("/refunds", json={"order": ticket["order"], "euros": euros}, idempotent=True).raise_for_status()
    return total, {**ticket, "euros": euros, "receipt": paid.json()["receipt"]}


job = Job("refund_approvals", checkpoint_every="1s", errors=files.jsonl("out/refund_errors"))
tickets = job.source(values(TICKETS), name="tickets").key_by("customer")
answers = job.source(values(ANSWERS), name="answers").map(lambda answer: Event(approval_of(answer), answer))
approvals = answers.key_by(lambda event: event.value["customer"])
refunds = tickets.union(approvals).stateful_map_async(refund, name="refunds", log_calls=True, effects=True)
refunds.sink(files.jsonl("out/refunds"), name="refunded")
