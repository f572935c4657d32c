"""Give each ticket to its team by a model, whose reply is an object of a class. A logged reply is not asked for again.

    python examples/model_server.py &
    clonos run examples/classify_tickets.py

Tokens are counted in the step after the call: once for each ticket, also if a process dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from clonos import Job, ai, files, metrics, values

TICKETS = [
    {"id": 1, "text": "I paid twice!"},
    {"id": 2, "text": "My parcel is empty."},
    {"id": 3, "text": "How do I clean a teapot?"},
    {"id": 4, "text": "The delivery is late again!"},
    {"id": 5, "text": "The price has changed."},
]
PROMPT = "Which team of a shop handles this ticket, and is it urgent? "


@dataclass
class Triage:
    team: Literal["billing", "shipping", "support"]
    is_urgent: bool


model = ai.chat("stand-in", base_url="http://localhost:8098/v1", timeout=30, retries=3)
tokens = metrics.Counter("ticket_tokens", "Tokens that the triage of tickets has used.")


def classify(ticket: dict[str, Any]) -> dict[str, Any]:
    reply = model(PROMPT + ticket["text"], response=Triage, temperature=0)
    return {**ticket, "team": reply.value.team, "urgent": reply.value.is_urgent, "tokens": reply.usage.total_tokens}


def count(ticket: dict[str, Any]) -> dict[str, Any]:
    tokens.inc(ticket["tokens"])
    return ticket


job = Job("classify_tickets", checkpoint_every="1s", errors=files.jsonl("out/ticket_errors"))
tickets = job.source(values(TICKETS), name="tickets")
triaged = tickets.map_async(classify, name="triage", capacity=32, retries=2, log_calls=True)
triaged.map(count, name="count").sink(files.jsonl("out/tickets"), name="triaged")
