"""A schema registry by the HTTP protocol of Confluent's, in a thread, with the rule BACKWARD: a new schema of a subject
must read what the one before it has written."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import fastavro
from fastavro.utils import generate_one


@dataclass
class Registry:
    """Schemas by id and by subject. ``failures`` answers with 503 are given first."""

    schemas: list[str] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    failures: int = 0
    requests: list[str] = field(default_factory=list)
    authorization: str | None = None
    url: str = ""

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Returns status and JSON of a reply."""
        self.requests.append(f"{method} {path}")
        if self.failures:
            self.failures -= 1
            return 503, {"error_code": 50003, "message": "not now"}
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                index = int(number) - 1
                if index in range(len(self.schemas)):
                    return 200, {"schema": self.schemas[index]}
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions"] if method == "POST":
                return self._register(subject, json.loads(body)["schema"])
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, schema: str) -> tuple[int, Any]:
        versions = self.subjects.setdefault(subject, [])
        if versions and not _reads(schema, self.schemas[versions[-1] - 1]):
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible with an earlier schema"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        if number not in versions:
            versions.append(number)
        return 200, {"id": number}


def _reads(reader: str, writer: str) -> bool:
    written = io.BytesIO()
    writing, reading = fastavro.parse_schema(json.loads(writer)), fastavro.parse_schema(json.loads(reader))
    fastavro.schemaless_writer(written, writing, generate_one(writing))
    written.seek(0)
    try:
        fastavro.schemaless_reader(written, writing, reading)
    except Exception:  # noqa: BLE001  fastavro has several
        return False
    return True


@contextmanager
def registry_server() -> Iterator[Registry]:
    """Runs a registry on a free port until the block ends."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply("GET", b"")

        def do_POST(self) -> None:
            self._reply("POST", self.rfile.read(int(self.headers["content-length"])))

        def _reply(self, method: str, body: bytes) -> None:
            registry.authorization = self.headers.get("authorization")
            status, answer = registry.answer(method, self.path, body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
