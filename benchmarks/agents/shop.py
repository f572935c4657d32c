"""Model and tool with an effect, which the agents of all engines ask by httpx.

A conversation is some turns. A turn asks the model, refunds the order that it names, and asks again.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any, Final

import httpx

TIMEOUT_S: Final = 30.0
PIDS: Final = "pids"

Message = dict[str, Any]


@functools.cache
def client() -> httpx.Client:
    """Returns the client of this process."""
    return httpx.Client(timeout=TIMEOUT_S, trust_env=False)


@functools.cache
def note_process(folder: str) -> None:
    """Says that the agent runs in this process, which may be killed."""
    Path(folder, PIDS, str(os.getpid())).touch()


def ask(url: str, messages: list[Message]) -> Message:
    """Asks the model; returns its message."""
    reply = client().post(f"{url}/v1/chat/completions", json={"model": "m", "messages": messages})
    return dict(reply.raise_for_status().json()["choices"][0]["message"])


def pay_back(url: str, order: str, key: str) -> int:
    """Refunds an order; returns the receipt."""
    reply = client().post(f"{url}/refunds", json={"order": order}, headers={"Idempotency-Key": key})
    return int(reply.raise_for_status().json()["receipt"])


def receipt_under(url: str, key: str) -> int | None:
    """Returns the receipt of the refund with a key, None if there is none."""
    found = client().get(f"{url}/refunds/{key}").json()["receipt"]
    return None if found is None else int(found)


def question(customer: str, turn: int) -> Message:
    """Returns the message of a customer."""
    return {"role": "user", "content": f"{customer} {turn}"}


def order_of(message: Message) -> str:
    """Returns the order that the model refunds."""
    return str(json.loads(message["tool_calls"][0]["function"]["arguments"])["order"])


def result(message: Message, receipt: int) -> Message:
    """Returns the result of the tool."""
    return {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": f"receipt {receipt}"}
