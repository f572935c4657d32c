"""A job with its page: it counts numbers by key as far as a gate lets it read, and its API is served meanwhile."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clonos import metrics
from clonos.connectors import files
from clonos.job import Handle, Job
from clonos.server.job_api.log_ring import log_ring
from clonos.server.job_api.server_thread import LOOPBACK, listen_tcp, served_job
from tests.processes.harness.gated_source import Gate, GatedNumbers
from tests.speed import scaled

LIMIT_S = scaled(40.0)


@dataclass
class PagedJob:
    """A running job and its API. `url` is that of the page, with the token."""

    handle: Handle
    gate: Gate
    folder: Path
    url: str
    base: str = field(init=False)
    token: str = field(init=False)

    def __post_init__(self) -> None:
        self.base, _, self.token = self.url.partition("/#token=")

    @property
    def path(self) -> str:
        """Path of the job in its API."""
        return f"/api/v1/jobs/{self.handle.job_id}"

    def open(self, path: str, body: object = None) -> Any:
        """Opens a path under that of the job; the answer has to be closed."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.urlopen(
            urllib.request.Request(self.base + self.path + path, data, headers), timeout=scaled(20)
        )

    def ask(self, path: str, body: object = None) -> Any:
        """The answer to a request, as JSON; that to a refused one has `error`."""
        try:
            with self.open(path, body) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return json.load(refusal)

    def events(self) -> Iterator[tuple[str, Any]]:
        """Events from now on, to the end of the job."""
        with self.open("/events?after=0") as stream:
            name = ""
            for line in stream:
                kind, _, value = line.decode().strip().partition(": ")
                if kind == "event":
                    name = value
                elif kind == "data":
                    yield name, json.loads(value)

    def rows(self) -> list[dict[str, int]]:
        """All rows of the output."""
        return [
            json.loads(line)
            for file in sorted((self.folder / "out").rglob("*.jsonl"))
            for line in file.read_text("utf-8").splitlines()
        ]


COUNTED = metrics.Counter("rows_made", "Rows by the parity of their key.", labelnames=["parity"])


def _row(counted: tuple[int, int]) -> dict[str, int]:
    COUNTED.labels("odd" if counted[0] % 2 else "even").inc()
    return {"key": counted[0], "count": counted[1]}


@contextmanager
def paged_job(folder: Path, name: str = "sums", **options: Any) -> Iterator[PagedJob]:
    """A job that has begun. Each key counts its numbers, and each count is a row."""
    gate = Gate(folder / "gate")
    settings = {"slots": "process", "store": folder / "store", "checkpoint_every": "300ms", "spare_slots": 2}
    job = Job(name, **{**settings, **options})
    numbers = job.source(GatedNumbers(gate), name="read", parallelism=2)
    counts = numbers.key_by(lambda number: number % 7).count(name="count")
    counts.map(_row, name="row").sink(files.jsonl(folder / "out"))
    with log_ring() as logs, job.start() as handle, served_job(handle, logs, listen_tcp(LOOPBACK, 0)) as url:
        yield PagedJob(handle, gate, folder, url)
