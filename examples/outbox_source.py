"""A source of your own: the rows of an append-only SQLite table, such as an outbox.

Gives each row of the table once. With `follow=True` the job runs on and reads rows that are inserted later. Rows must
not change, and they must appear in the order of their ids, so that the same position always leads to the same rows.

    python examples/outbox_source.py
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from clonos import Job, stdout


class Outbox:
    """Source of the table `outbox (id INTEGER PRIMARY KEY, payload TEXT)`. A split is a share of the ids."""

    def __init__(self, path: str, follow: bool = False) -> None:
        self.path = path
        self.follow = follow

    def splits(self, parallelism: int) -> list[bytes]:
        return [f"{share}/{parallelism}".encode() for share in range(parallelism)]

    def reader(self) -> OutboxReader:
        return OutboxReader(self.path, self.follow)


class OutboxReader:
    """Reader of one share. A mark is the id of the last row that was read."""

    def __init__(self, path: str, follow: bool) -> None:
        self.path = path
        self.follow = follow

    def open(self, split: bytes, mark: bytes | None) -> None:
        self.share, self.shares = (int(number) for number in split.split(b"/"))
        self.last_id = int(mark or 0)
        self.database = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)

    def read(self, records_max: int) -> list[dict[str, Any]] | None:
        query = "SELECT id, payload FROM outbox WHERE id > ? AND id % ? = ? ORDER BY id LIMIT ?"
        rows = self.database.execute(query, (self.last_id, self.shares, self.share, records_max)).fetchall()
        if not rows:
            return [] if self.follow else None  # []: nothing at the moment; None: the end of the split
        self.last_id = rows[-1][0]
        return [json.loads(payload) for _, payload in rows]

    def mark(self) -> bytes:
        return str(self.last_id).encode()

    def close(self) -> None:
        self.database.close()


def fill(path: str, count: int) -> None:
    rows = [(json.dumps({"order": number}),) for number in range(count)]
    database = sqlite3.connect(path)
    with database:
        database.execute("DROP TABLE IF EXISTS outbox")
        database.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, payload TEXT)")
        database.executemany("INSERT INTO outbox (payload) VALUES (?)", rows)
    database.close()


job = Job("outbox_source", parallelism=2, checkpoint_every="1s")
job.source(Outbox("outbox.db"), name="outbox").map(lambda row: row["order"]).sink(stdout())

if __name__ == "__main__":
    fill("outbox.db", 100)
    job.run(slots="process", overwrite=True)
