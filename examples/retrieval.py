"""Answer questions from a folder of documents: the passages that are near to a question go to a model with it.

`index` keeps one row per passage in the table `passages` of PostgreSQL, with its vector. `answers` gives each question
with its answer and the places of the passages. A task that takes over after a failure asks for nothing again that its
log has. The table needs pgvector: `CREATE EXTENSION vector`. The models are those of Ollama or of any such server:

    export DATABASE_URL=postgresql://... MODEL_URL=http://localhost:11434/v1
    python examples/retrieval.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from clonos import Job, ai, files, postgres, secrets, stdout, values

TEXTS = Path(__file__).with_name("data") / "texts"
QUESTIONS = ["What is the question of Hamlet?", "Who jumps over the dog?"]
DATABASE = secrets.env("DATABASE_URL")
SERVER = os.environ.get("MODEL_URL", "http://localhost:11434/v1")
COLUMNS = {"place": "text", "text": "text", "embedding": "vector(384)"}

embed = ai.embeddings("all-minilm", base_url=SERVER)
model = ai.chat("llama3.2", base_url=SERVER)
nearest = postgres.nearest(DATABASE, "passages", "embedding", columns=["place", "text"], k=2)


def passages(file: tuple[str, str]) -> list[dict[str, Any]]:
    path, text = file
    parts = [part.strip() for part in text.split("\n\n")]
    return [{"place": f"{Path(path).name} {at}", "text": part} for at, part in enumerate(parts, 1) if part]


def answer(question: str) -> dict[str, Any]:
    found = nearest(embed(question).vector)
    known = "\n\n".join(row["text"] for row in found)
    reply = model(f"Answer from these passages only.\n\n{known}\n\nQuestion: {question}", temperature=0)
    return {"question": question, "answer": reply.text, "places": [row["place"] for row in found]}


index = Job("index", checkpoint_every="1s")
texts = index.source(files.whole(TEXTS, encoding="utf-8"), name="texts").flat_map(passages, name="passages")
embedded = texts.enrich_batch(embed.by_text, on="text", into="embedding", keys=256, within="50ms", name="embeddings")
embedded.key_by("place").sink(
    postgres.table(DATABASE, "passages", COLUMNS, upsert="place", round_vectors=True), name="table"
)

answers = Job("answers", checkpoint_every="1s")
questions = answers.source(values(QUESTIONS), name="questions")
questions.map_async(answer, name="answer", capacity=8, log_calls=True).sink(stdout(), name="answered")

if __name__ == "__main__":
    index.run(slots="process")
    answers.run(slots="process")
