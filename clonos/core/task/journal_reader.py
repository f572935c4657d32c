"""Reader of a journal in its task: what the chain was fed and what it has read (protocol 7)."""

from __future__ import annotations

from clonos.core.ports.operator_chain import JournalledChain, NothingToRead
from clonos.core.ports.task_port import TaskPort


class JournalReader:
    """Reader of one incarnation's journal, between the port and the chain."""

    __slots__ = ("_chain", "_is_wanted", "_port", "end_bytes", "is_released")

    def __init__(self, chain: JournalledChain, port: TaskPort, offset_bytes: int) -> None:
        self._chain, self._port = chain, port
        self.end_bytes = offset_bytes  # end of what the chain was fed
        self.is_released = True  # whether a live task may read what was fed
        self._is_wanted = True

    @property
    def read_bytes(self) -> int:
        """Offset up to which the chain has read."""
        return self.end_bytes - self._chain.unread_bytes()

    @property
    def has_readable(self) -> bool:
        """Whether the chain has records that a live task may read."""
        return self.is_released and self._chain.unread_bytes() > 0

    def recover(self, data: bytes) -> None:
        """Feeds the gathered journal, for replay only, because some keepers may lack a part of it."""
        self.feed(data)
        self.is_released = not data

    def feed(self, data: bytes) -> None:
        """Feeds the next bytes, which every keeper holds together with everything gathered."""
        self._is_wanted &= self._chain.feed(data)
        self.end_bytes += len(data)
        self.is_released = True

    def require(self, count: int) -> None:
        """Checks that replay finds the next ``count`` records. Otherwise it reports the journal as lost."""
        found = self._chain.poll(count)
        if isinstance(found, NothingToRead) or found[1] < count:
            self._port.lose_journal()

    def open(self) -> None:
        """Requests more input once the task is live, unless the journal has ended. Requests once only."""
        if self._is_wanted:
            self._is_wanted = False
            self._port.open_journal()
