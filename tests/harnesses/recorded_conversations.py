"""Conversations of customers with a model and a tool, as tests record them: a stand-in answers, and an event approves
refunds of order 8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clonos import Cancel, Event, Job, ai, await_event, collect, service, values
from clonos.io.http.http_client import HttpRequest
from clonos_services.stand_ins import StandIns
from tests.harnesses.model_server import completion
from tests.harnesses.recorded_jobs import record_job

Text = dict[str, str]
STEP = "replies"
FOLDER = "replies/0"

model = ai.chat("gpt-x", base_url="http://localhost:8000/v1")


@service(effect=True)
def refund(order: str, idempotency_key: str = "") -> str:
    """Refunds an order."""
    return f"order {order} is refunded"


def converse(customer: str, history: list[Any] | None, text: Text) -> tuple[list[Any], Text]:
    """Answers a text with the help of the model and the tool."""
    history = [*(history or []), {"role": "user", "content": text["text"]}]
    while True:
        reply = model(history, temperature=0)
        history = [*history, reply.message]
        if not reply.tool_calls:
            return history, {"customer": customer, "reply": reply.text}
        for call in reply.tool_calls:
            if call.arguments["order"] == "8":
                await_event("approved")
            history.append(call.result(refund(call.arguments["order"])))


TEXTS = [{"customer": name, "text": f"{name} has {text}"} for text in ("a cup", "order") for name in ("7", "8")]
ROWS = [*TEXTS, {"customer": "8", "text": "8 has a question"}, Event("approved", True)]


def customer_of(row: Any) -> str:
    """Returns the key of a text, and of events and cancellations."""
    return "8" if isinstance(row, Event | Cancel) else str(row["customer"])


def answered(request: HttpRequest) -> dict[str, Any]:
    """The model: it asks for a refund if the last text ends with "order"."""
    assert isinstance(request.body, bytes)
    last = json.loads(request.body)["messages"][-1]
    if last["role"] == "user" and last["content"].endswith("order"):
        arguments = json.dumps({"order": last["content"][0]})
        call = {"id": "call-1", "type": "function", "function": {"name": "refund", "arguments": arguments}}
        return completion(None, finish_reason="tool_calls", tool_calls=[call])
    return completion(f"I see: {last['content']}")


def conversations(function: Any = converse, rows: list[Any] = ROWS, **options: Any) -> Job:
    """Creates the job. ``options``: of the step with the conversations."""
    job = Job("chat")
    texts = job.source(values(rows), name="texts").key_by(customer_of)
    settings = {"capacity": 4, "log_calls": True, "effects": True, **options}
    texts.stateful_map_async(function, name=STEP, **settings).sink(collect(), name="out")
    return job


def record_conversations(folder: Path, function: Any = converse, rows: list[Any] = ROWS, **options: Any) -> Path:
    """Runs the job with the stand-in of the model; returns the record of the task with the conversations."""
    with StandIns(http=answered).answering():
        return record_job(conversations(function, rows, **options), folder)[FOLDER]


def record_a_wait(folder: Path, function: Any = converse, rows: list[Any] = TEXTS[3:]) -> Path:
    """Records the epoch after a checkpoint, before which the rows have come: a call of 8 awaits its approval."""
    with StandIns(http=answered).answering():
        job = conversations(function, rows)
        return record_job(job, folder, barriers={1: 1}, epoch=1, are_calls_instant=True)[FOLDER]
