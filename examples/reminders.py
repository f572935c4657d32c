"""Remind customers who filled a cart and did not order within half an hour.

Gives one reminder per forgotten cart. Each event of a cart moves its timer; an order deletes it. Timers are state: they
fire although the process that set them is dead. When the input of a job ends, all timers fire at once.

    clonos run examples/reminders.py
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from clonos import Context, Job, ValueState, clock, files, stdout

EVENTS = Path(__file__).with_name("data") / "carts.jsonl"
PATIENCE = timedelta(minutes=30)


class Reminders:
    """Emits the key of each cart to which nothing has happened for half an hour."""

    due = ValueState[datetime | None]("due", default=None)
    items = ValueState("items", default=0)

    def process(self, event: dict[str, Any], context: Context[str, dict[str, Any]]) -> None:
        due, items = context.state(self.due), context.state(self.items)
        if due.value is not None:
            context.delete_timer(due.value)
            due.clear()
        if event["action"] == "order":
            items.clear()
            return
        items.value += 1
        due.value = clock.now() + PATIENCE
        context.set_timer(due.value)

    def on_timer(self, timestamp: datetime, context: Context[str, dict[str, Any]]) -> None:
        context.emit({"cart": context.key, "items": context.state(self.items).value})
        context.state(self.due).clear()
        context.state(self.items).clear()


job = Job("reminders", parallelism=2, checkpoint_every="1s")
job.source(files.jsonl(EVENTS), name="events").key_by("cart").process(Reminders, name="reminders").sink(stdout())
