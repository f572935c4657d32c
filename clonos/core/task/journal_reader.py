"""The task's end of a journal: what its chain has been fed, and what it has read."""

from __future__ import annotations

from clonos.core.ports.operator_chain import JournalledChain, NothingToRead
from clonos.core.ports.task_port import TaskPort


class JournalReader:
    """The task's end: what its chain has been fed, and what it has read of it."""

    __slots__ = ("_chain", "_is_wanted", "_port", "end_bytes", "is_released")

    def __init__(self, chain: JournalledChain, port: TaskPort, offset_bytes: int) -> None:
        self._chain, self._port = chain, port
        self.end_bytes = offset_bytes  # of what the chain has been fed
        self.is_released = True  # a live task may read it
        self._is_wanted = True

    @property
    def read_bytes(self) -> int:
        """Offset up to which the chain has read."""
        return self.end_bytes - self._chain.unread_bytes()

    def recover(self, data: bytes) -> None:
        """This was found, for replay: not every keeper may have it."""
        self.feed(data)
        self.is_released = not data

    def feed(self, data: bytes) -> None:
        """More has been kept, and all that was found."""
        self._is_wanted &= self._chain.feed(data)
        self.end_bytes += len(data)
        self.is_released = True

    def require(self, count: int) -> None:
        """Replay is going to read so many records: they are there, or the journal is lost."""
        found = self._chain.poll(count)
        if isinstance(found, NothingToRead) or found[1] < count:
            self._port.lose_journal()

    def open(self) -> None:
        """The task is live: the journal goes on, unless it has ended. Asked for once."""
        if self._is_wanted:
            self._is_wanted = False
            self._port.open_journal()
