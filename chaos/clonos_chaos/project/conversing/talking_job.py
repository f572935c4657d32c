"""Job of conversations with a model, and its oracle, which compares the outputs with what the server has counted.

    read -> talk (by key: model, tool with an effect, model; some turns await an approval)
         -> written -> files (transactional), table (immediate)

A turn asks the model, refunds an order, and asks again. Its row has the whole conversation, in which each reply has
the number of its request.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from clonos.connectors import files, sqlite
from clonos.core.log.call_outcomes import CallNeverHappened
from clonos.job import Job
from clonos.operators.steps.awaited_events import Event
from clonos_chaos.project.conversing.talk_server import CHAT, REFUNDS, Paid, TalkServer
from clonos_chaos.scenario.scenario_gate import SOURCES, Gated
from clonos_chaos.scenario.scenario_oracle import Findings, Row, committed_rows, table_rows
from clonos_services import ai, http
from clonos_services import random as causal_random
from clonos_services.awaiting import await_event
from clonos_services.service import service

APPROVED_EVERY: Final = 3
"""Every third turn awaits an approval."""

APPROVED: Final = "approved"
APPROVED_LATER: Final = 6
"""Turns of other conversations between a text and its approval."""

ATTEMPTS: Final = 12
"""Requests of one question, if the server fails each of them."""

CALL_TIMEOUT_S: Final = 30.0
COLUMNS: Final = ("customer", "turn", "messages", "receipt", "drawn")
ASKING, WRITING, TABLE = "talk", "written", "table"
"""Steps whose tasks are killed."""


class ModelClient(StrEnum):
    """How a job asks the model."""

    AI = "ai.chat"
    HTTPX = "httpx"  # as other libraries do, with ``intercept=True``


def find_refund(key: str, url: str, order: str) -> int:
    """Asks the shop for a refund in doubt. Raises: CallNeverHappened."""
    found = http.get(f"{url}{REFUNDS}/{key}", timeout=CALL_TIMEOUT_S)
    if found.status_code == 404:
        raise CallNeverHappened(order)
    return int(found.raise_for_status().json()["receipt"])


@service(effect=True, reconcile=find_refund)
def refund(url: str, order: str, idempotency_key: str = "") -> int:
    """Refunds an order; returns the receipt."""
    headers = {"Idempotency-Key": idempotency_key}
    reply = http.post(f"{url}{REFUNDS}", json={"order": order}, headers=headers, retries=0, timeout=CALL_TIMEOUT_S)
    return int(reply.raise_for_status().json()["receipt"])


@functools.cache
def _httpx_client() -> Any:
    import httpx

    return httpx.Client(timeout=CALL_TIMEOUT_S, trust_env=False)


class Talk:
    """Function of a turn. ``url``: of the server."""

    def __init__(self, url: str, client: ModelClient) -> None:
        self.url, self.client = url, client
        self.model = ai.chat("m", base_url=f"{url}/v1", retries=ATTEMPTS, timeout=CALL_TIMEOUT_S)

    def __call__(self, customer: str, messages: list[Any] | None, turn: dict[str, Any]) -> tuple[list[Any], Row]:
        """Asks, refunds what the model says, and asks again."""
        drawn = causal_random.getrandbits(40)
        messages = [*(messages or []), {"role": "user", "content": f"{customer} {turn['turn']}"}]
        if turn["turn"] % APPROVED_EVERY == 0:
            messages = [*messages, {"role": "system", "content": await_event(approval_of(turn["turn"]))["says"]}]
        asking = self._asked(messages)
        (call,) = asking["tool_calls"]
        receipt = refund(self.url, json.loads(call["function"]["arguments"])["order"])
        messages = [*messages, asking, {"role": "tool", "tool_call_id": call["id"], "content": f"receipt {receipt}"}]
        messages = [*messages, self._asked(messages)]
        return messages, {
            "customer": customer,
            "turn": turn["turn"],
            "messages": messages,
            "receipt": receipt,
            "drawn": drawn,
        }

    def _asked(self, messages: list[Any]) -> dict[str, Any]:
        if self.client is ModelClient.AI:
            return dict(self.model(messages).message)
        import httpx

        for _ in range(ATTEMPTS):
            try:
                reply = _httpx_client().post(f"{self.url}{CHAT}", json={"model": "m", "messages": messages})
            except httpx.TransportError:  # the server breaks off
                continue
            if reply.status_code == 200:
                return dict(reply.json()["choices"][0]["message"])
        raise ValueError(f"the model has not answered {ATTEMPTS} requests")


def approval_of(turn: int) -> str:
    """Returns the name of the event that a turn awaits."""
    return f"approval of {turn}"


def turns_of(conversations: int, turns: int) -> list[tuple[int, int, bool]]:
    """Returns what a split gives, in order: number of the conversation in it, turn, whether it is an approval."""
    found = []
    for turn in range(turns):
        texts = [(number, turn, False) for number in range(conversations)]
        approvals = [(number, turn, True) for number in range(conversations)] if turn % APPROVED_EVERY == 0 else []
        found += texts[:APPROVED_LATER]
        for text, approval in zip_longest(texts[APPROVED_LATER:], approvals):
            found += [each for each in (text, approval) if each is not None]
    return found


def customer_of(split: int, number: int) -> str:
    """Returns the key of a conversation."""
    return f"c{split}:{number}"


def _key_of(record: Any) -> str:
    return str((record.value if isinstance(record, Event) else record)["customer"])


def talking(folder: Path, url: str, client: ModelClient, given: list[tuple[int, int, bool]], capacity: int) -> Job:
    """Makes the job with its outputs in ``folder``. ``given``: of each split. ``capacity``: of each of the two tasks
    that ask."""

    def record(place: tuple[int, int]) -> Any:
        split, offset = place
        number, turn, is_approval = given[offset]
        text = {"customer": customer_of(split, number), "turn": turn}
        return Event(approval_of(turn), {**text, "says": APPROVED}) if is_approval else text

    job = Job("talking", parallelism=2)
    turns = job.source(Gated(folder), name="read").map(record).key_by(_key_of)
    talks = turns.stateful_map_async(
        Talk(url, client),
        name=ASKING,
        capacity=capacity,
        log_calls=True,
        effects=True,
        intercept=client is ModelClient.HTTPX,
    )
    written = talks.rebalance().map(lambda row: {**row, "messages": json.dumps(row["messages"])}, name=WRITING)
    written.sink(files.jsonl(str(folder / "output")), name="files")
    written.sink(sqlite(str(folder / "table.sqlite"), "rows", columns=COLUMNS), name=TABLE)
    return job


# ------------------------------------------------------------------ the oracle


def judge_talks(folder: Path, server: TalkServer, given: list[tuple[int, int, bool]]) -> Findings:
    """Judges the outputs in a folder. ``calls``: of the model, whose replies are in the outputs. ``calls_repeated``:
    further replies that the server has sent."""
    outputs = {"files": list(committed_rows(folder / "output")), "table": list(table_rows(folder / "table.sqlite"))}
    turns = [(number, turn) for number, turn, is_approval in given if not is_approval]
    expected = [(customer_of(split, number), turn) for split in range(SOURCES) for number, turn in turns]
    return judge(server, outputs, expected)


def judge(server: TalkServer, outputs: dict[str, list[Row]], expected: list[tuple[str, int]]) -> Findings:
    """Compares outputs with each other, and with what the server has replied and refunded."""
    findings = Findings(records=len(expected))
    found: dict[tuple[str, int], Row] = {}
    for name, rows in outputs.items():
        findings.count(name, ((row["customer"], row["turn"]) for row in rows), expected)
        for row in rows:
            values_of = {column: row[column] for column in COLUMNS}
            before = found.setdefault((row["customer"], row["turn"]), values_of)
            findings.compare(f"{name} {row['customer']}, {row['turn']}", before, values_of)
    known: set[int] = set()
    for (customer, turn), row in found.items():
        known.update(_check_turn(findings, server, row, found.get((customer, turn - 1))))
    findings.calls = len(known)
    findings.calls_repeated = len(server.paid.keys() - known)
    orders = {f"{customer}-{turn}" for customer, turn in expected}
    findings.count("refunds", (order for order, keys in server.refunds.items() for _ in keys), orders)
    return findings


def _check_turn(findings: Findings, server: TalkServer, row: Row, before: Row | None) -> Iterator[int]:
    """Checks that a turn goes on with the conversation before it, and yields the numbers of its replies."""
    place, messages = f"{row['customer']}, {row['turn']}", json.loads(row["messages"])
    earlier = json.loads(before["messages"]) if before is not None else []
    findings.compare(f"begin of {place}", earlier, messages[: len(earlier)])
    approvals = [{"role": "system", "content": APPROVED}] if row["turn"] % APPROVED_EVERY == 0 else []
    question, *middle, asking, receipt, answer = (
        messages[len(earlier) :] if len(messages) >= len(earlier) + 4 else [{}] * 4
    )
    findings.compare(f"question of {place}", question.get("content"), f"{row['customer']} {row['turn']}")
    findings.compare(f"approval of {place}", middle, approvals)
    findings.compare(f"receipt of {place}", receipt.get("content"), f"receipt {row['receipt']}")
    keys = server.refunds.get(f"{row['customer']}-{row['turn']}", [""])
    findings.compare(f"refund of {place}", server.receipts.get(keys[-1], 0), row["receipt"])
    for which, reply in enumerate((asking.get("tool_calls", [{}])[0].get("id", ""), answer.get("content") or "")):
        number = int(reply.split()[-1]) if reply else 0
        paid = Paid(row["customer"], row["turn"], which)
        findings.compare(f"reply {number} in {place}", server.paid.get(number, ()), paid)
        yield number
