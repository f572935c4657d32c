"""Drop repeated events: pass each id on once, and forget it after an hour.

Gives the payments of `data/payments.jsonl`, in which some were delivered twice, each once. The ids that were seen are
state, so a payment stays a duplicate although the process that saw it first is dead. The timer limits the size of the
state.

    clonos run examples/deduplicate.py
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from clonos import Context, Job, ValueState, clock, files, stdout

PAYMENTS = Path(__file__).with_name("data") / "payments.jsonl"
REMEMBERED = timedelta(hours=1)

Payment = dict[str, Any]


class Deduplicate:
    """Passes on the first record of each key."""

    seen = ValueState("seen", default=False)

    def process(self, payment: Payment, context: Context[str, Payment]) -> None:
        seen = context.state(self.seen)
        if not seen.value:
            seen.value = True
            context.set_timer(clock.now() + REMEMBERED)
            context.emit(payment)

    def on_timer(self, timestamp: datetime, context: Context[str, Payment]) -> None:
        context.state(self.seen).clear()


job = Job("deduplicate", checkpoint_every="1s")
job.source(files.jsonl(PAYMENTS), name="payments").key_by("id").process(Deduplicate, name="deduplicate").sink(stdout())
