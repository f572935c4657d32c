"""Receive webhooks, answer each when it is safe, and add up what each customer has paid.

Counts each event once: the sender gets 200 when another process holds the event too. Without an answer it sends the
event again under the same id, and the source drops the repetition. Bodies that are not JSON go to a folder of their
own. The job runs until it is stopped.

    clonos run examples/webhooks.py
    curl -d '{"customer": "ann", "amount": 30}' -H 'Idempotency-Key: e1' localhost:8080/payments

With a token, which is wanted before others than this machine may send: token=secrets.env("WEBHOOK_TOKEN").
"""

from __future__ import annotations

import os
from typing import Any

from clonos import Job, codecs, files, web

PORT = int(os.environ.get("WEBHOOK_PORT", "8080"))


def paid_so_far(customer: str, paid: int | None, event: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    total = (paid or 0) + event["amount"]
    return total, {"customer": customer, "paid": total}


job = Job("webhooks", checkpoint_every="500ms", errors=files.jsonl("out/webhook_errors"))
payments = job.source(web.receive(PORT, "/payments", decode=codecs.json()), name="payments")
totals = payments.key_by("customer").stateful_map(paid_so_far, name="paid_so_far")
totals.sink(files.jsonl("out/webhooks"), name="totals")
