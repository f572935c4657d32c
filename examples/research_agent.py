"""Answer questions by an agent that searches notes, reads them, and publishes an article once a person has approved it.

Each question to the model and each call of a tool is recorded: an agent whose process dies goes on with the next one.
While it waits for the approval nothing is open, and after two days without an answer it is refused.

    python examples/model_server.py &
    clonos run examples/research_agent.py

Approvals are a list here. In production they come from a topic, a table or a webhook (`webhooks.py`).
"""

from __future__ import annotations

from typing import Any

from clonos import Event, Job, ai, files, http, values

NOTES = {
    "tea-water": "Green tea wants water of 70 degrees.",
    "tea-time": "Green tea draws for two minutes.",
    "coffee": "Coffee wants 93 degrees.",
    "cups": "A cup holds 0.2 litres.",
}
QUESTIONS = [
    {"reader": "ann", "question": "How warm is tea?"},
    {"reader": "bob", "question": "How warm is coffee?"},
    {"reader": "eve", "question": "Where is silver?"},
    {"reader": "ann", "question": "How large are cups?"},
]
ANSWERS = [
    {"reader": "bob", "title": "How warm is coffee?", "approved": False, "reason": "we sell tea"},
    {"reader": "ann", "title": "How large are cups?", "approved": True},
    {"reader": "ann", "title": "How warm is tea?", "approved": True},
]

server = http.session(base_url="http://localhost:8098", timeout=5, retries=2)


@ai.tool
def search(words: list[str]) -> list[str]:
    """Find notes by their names. Returns the names."""
    return [name for name in NOTES if any(word in name for word in words)]


@ai.tool
def read(note: str) -> str:
    """Read a note."""
    return NOTES[note]


@ai.tool(effect=True, idempotent=True, approve=lambda title, text: f"publish {title}", approve_within="2d")
def publish(title: str, text: str, idempotency_key: str = "") -> str:
    """Publish an article, for all to see."""
    sent = server.post("/articles", json={"title": title, "text": text}, headers={"Idempotency-Key": idempotency_key})
    return f"published as {sent.raise_for_status().json()['number']}"


researcher = ai.agent(
    ai.chat("stand-in", base_url="http://localhost:8098/v1", timeout=30, retries=3),
    tools=[search, read, publish],
    instructions="Answer by the notes alone, and publish what you find.",
    turns_max=6,
    text=lambda row: row["question"],
    select=lambda row, reply: {**row, "answer": reply.text, "turns": reply.turns},
)

job = Job("research_agent", checkpoint_every="1s", errors=files.jsonl("out/research_errors"))
questions: Any = job.source(values(QUESTIONS), name="questions").key_by("reader")
answers = job.source(values(ANSWERS), name="answers").map(lambda answer: Event(f"publish {answer['title']}", answer))
approvals = answers.key_by(lambda event: event.value["reader"])
found = questions.union(approvals).stateful_map_async(
    researcher, name="research", capacity=64, log_calls=True, effects=True
)
found.sink(files.jsonl("out/research"), name="answered")
