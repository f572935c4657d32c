"""Benchmark: conversations that await an event, 10,000 of them at once, and calls of those for which it comes.

Each begins with a question, and awaits an event. Then events come at a rate, and each conversation asks on. The time
from a reply to the next request is the own part of a call, with that of the client.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.agents.measure import gaps_ms
from benchmarks.harness.ab_session import Session
from benchmarks.harness.result_counter import WrongResult
from clonos import Event, Job, ai, await_event, files
from clonos_chaos.project.conversing.talk_server import TalkServer, talk_server
from clonos_chaos.scenario.scenario_gate import SOURCES, Gate, Gated

CONVERSATIONS: Final = 10_000
TEXT: Final = "The cup is broken. " * 100
CALLS_AFTER: Final = 4
CALLS_PER_S: Final = 200
ASKED_S: Final = 20.0
THINKS_S: Final = (0.02, 0.02)
OPEN: Final = 64
LIMIT_S: Final = 240.0
BYTES_A_MB: Final = 1_000_000


def run(session: Session) -> None:
    """Measures the memory while all await, and the calls of some."""
    conversations = CONVERSATIONS // 10 if session.is_quick else CONVERSATIONS
    with tempfile.TemporaryDirectory(prefix="agents-") as name, talk_server(1, (("reply", 1),), THINKS_S) as server:
        folder = Path(name)
        gate = Gate(folder)
        job = _job(folder, server.url, conversations // SOURCES)
        began_s = time.monotonic()
        with job.start(slots="process", store=folder / "store", checkpoint_every="1s") as handle:
            gate.open_to(conversations)
            _wait(lambda: server.paid_count >= conversations, "the first questions")
            session.figure("conversations begun", conversations / (time.monotonic() - began_s), "/s")
            before = handle.status().checkpoint
            _wait(lambda: handle.status().checkpoint > before + 1, "checkpoints")
            process = psutil.Process(os.getpid())
            family = [process, *process.children(recursive=True)]
            used_bytes = sum(each.memory_info().rss for each in family)
            session.figure(f"{conversations:,} conversations that wait", used_bytes / BYTES_A_MB, "MB", "<= 2000")
            server.times.clear()
            _feed(gate, conversations, CALLS_PER_S / CALLS_AFTER)
            asked = int(ASKED_S * CALLS_PER_S)
            _wait(lambda: server.paid_count >= conversations + asked - CALLS_AFTER * 2, "the calls after the events")
            handle.stop()
            handle.wait(LIMIT_S)
        _report(session, server)


def _job(folder: Path, url: str, of_each: int) -> Job:
    model = ai.chat("m", base_url=f"{url}/v1")

    def record(given: tuple[int, int]) -> Any:
        source, offset = given
        customer = f"c{source}-{offset % of_each}"
        return {"customer": customer, "text": TEXT} if offset < of_each else Event("goes on", {"customer": customer})

    def customer_of(record: Any) -> str:
        return str((record.value if isinstance(record, Event) else record)["customer"])

    def converse(customer: str, messages: list[Any] | None, text: dict[str, str]) -> tuple[list[Any], int]:
        messages = [{"role": "system", "content": text["text"]}, {"role": "user", "content": f"{customer} 0"}]
        messages = [*messages, model(messages).message]
        await_event("goes on")
        for _ in range(CALLS_AFTER):
            messages = [*messages, {"role": "tool", "tool_call_id": "1", "content": "done"}]
            messages = [*messages, model(messages).message]
        return messages, len(messages)

    job = Job("waiting")
    texts = job.source(Gated(folder), name="texts").map(record).key_by(customer_of)
    answers = texts.stateful_map_async(converse, name="talk", capacity=OPEN, log_calls=True)
    answers.sink(files.jsonl(folder / "answers"))
    return job


def _feed(gate: Gate, begun: int, per_second: float) -> None:
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < ASKED_S:
        gate.open_to(begun + int(passed_s * per_second))
        time.sleep(SOURCES / per_second)
    gate.open_to(begun + int(ASKED_S * per_second))


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise WrongResult(f"{what} did not come within {LIMIT_S:g} s")
        time.sleep(0.05)


def _report(session: Session, server: TalkServer) -> None:
    own_ms = gaps_ms(server)
    session.figure(f"own part of a call at {CALLS_PER_S}/s, median", statistics.median(own_ms), "ms")
    session.figure(f"own part of a call at {CALLS_PER_S}/s, 99 %", own_ms[int(len(own_ms) * 0.99)], "ms", "<= 5")
