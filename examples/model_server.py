"""A stand-in for a model, which `classify_tickets.py` and `research_agent.py` ask: it follows rules, and needs no key.

It speaks the protocol of OpenAI on localhost:8098 until it is stopped, and takes articles at /articles:

    python examples/model_server.py

A real model is `ai.chat("its name", api_key=secrets.env("MODEL_KEY"))`, or its address as `base_url=`.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PORT = 8098
ARTICLES: dict[str, str] = {}
TEAMS = {"paid": "billing", "price": "billing", "parcel": "shipping", "late": "shipping"}

Message = dict[str, Any]


def completion(text: str | None, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A reply, or calls of tools."""
    message: Message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
            for number, (name, given) in enumerate(calls)
        ]
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return {"model": "stand-in", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The reply to a request: a class of tickets if it asks for an object, and else the next step of a search."""
    messages: list[Message] = asked["messages"]
    if "response_format" in asked:
        text = messages[-1]["content"].lower()
        team = next((team for word, team in TEAMS.items() if word in text), "support")
        return completion(json.dumps({"team": team, "is_urgent": "!" in text}))
    place = max(number for number, message in enumerate(messages) if message["role"] == "user")
    question = messages[place]["content"]
    results = [message["content"] for message in messages[place:] if message["role"] == "tool"]
    if not results:
        return completion(None, ("search", {"words": question.lower().strip("?").split()}))
    if len(results) == 1:
        found = json.loads(results[0])
        return completion(None, *(("read", {"note": note}) for note in found)) if found else completion("Nothing.")
    if not results[-1].startswith(("published", "refused")):
        return completion(None, ("publish", {"title": question, "text": " ".join(results[1:])}))
    return completion(results[-1])


class Model(BaseHTTPRequestHandler):
    """Chat completions, and articles, each key once."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/articles"):
            key = self.headers["Idempotency-Key"]
            found: Any = {"number": ARTICLES.setdefault(key, f"article {len(ARTICLES) + 1}")}
        else:
            found = answer(asked)
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("localhost", PORT), Model).serve_forever()
