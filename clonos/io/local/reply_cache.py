"""Cache of replies in a file of SQLite, which the processes of a machine share.

Each use opens the file: a reply costs far more, and a connection that stays open would belong to one thread.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clonos.core.model.errors import EnvironmentFault
from clonos.io.system.wall_clock import wall_ns

logger = logging.getLogger(__name__)

NANOSECONDS_PER_SECOND: Final = 1_000_000_000
LOCK_WAIT_S: Final = 10.0
TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS replies (digest BLOB PRIMARY KEY, at_ns INTEGER NOT NULL, reply BLOB NOT NULL)"
)
INDEX: Final = "CREATE INDEX IF NOT EXISTS replies_by_age ON replies (at_ns)"


class CacheUnusable(EnvironmentFault):
    """The file of a cache cannot be read."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"the cache {self.path} cannot be used: {self.reason}. Repair or remove the file, or its folder."


@dataclass(frozen=True, slots=True)
class ReplyCache:
    """Replies by the digest of what was asked.

    Attributes:
        path: of the file.
        size: the most replies in it; the oldest are removed.
        ttl: seconds after which a reply counts no more; None: without end.
    """

    path: str
    size: int
    ttl: float | None

    def find(self, digest: bytes) -> bytes | None:
        """Returns the reply, None without one. Raises: CacheUnusable."""
        try:
            with self._opened() as database:
                found = database.execute(
                    "SELECT reply FROM replies WHERE digest = ? AND at_ns > ?", (digest, self._oldest_ns())
                ).fetchone()
        except sqlite3.Error as error:
            raise CacheUnusable(self.path, str(error)) from error
        return None if found is None else bytes(found[0])

    def store(self, digest: bytes, reply: bytes) -> None:
        """Stores a reply, and removes those that are too old or too many. A failure is a warning: the caller has the
        reply."""
        try:
            with self._opened() as database:
                database.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (digest, wall_ns(), reply))
                database.execute("DELETE FROM replies WHERE at_ns <= ?", (self._oldest_ns(),))
                database.execute(
                    "DELETE FROM replies WHERE digest IN"
                    " (SELECT digest FROM replies ORDER BY at_ns DESC, rowid DESC LIMIT -1 OFFSET ?)",
                    (self.size,),
                )
        except sqlite3.Error as error:
            logger.warning("the cache %s did not take a reply: %s", self.path, error)

    def _oldest_ns(self) -> int:
        now_ns = wall_ns()
        ttl_ns = now_ns if self.ttl is None else min(self.ttl * NANOSECONDS_PER_SECOND, now_ns)
        return now_ns - int(ttl_ns)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if not os.path.exists(self.path):
            with suppress(OSError):  # SQLite names what is wrong
                Path(self.path).touch(0o600)  # replies are as private as records
        with closing(sqlite3.connect(self.path, timeout=LOCK_WAIT_S)) as database, database:
            database.execute("PRAGMA synchronous = OFF")  # a process that dies leaves the file whole
            database.execute(TABLE)
            database.execute(INDEX)
            yield database
