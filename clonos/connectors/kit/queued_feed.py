"""Base of sources of brokers that forget a message when it is acknowledged: they are journalled first.

A message is acknowledged when a keeper has it, or on request when checkpoints have it. One whose acknowledgement was
lost with its connection is delivered again. It is recognised by its identity among the last ones, and counts once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from queue import Empty, SimpleQueue
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypedDict, TypeVar

from clonos.connectors.connector_errors import InvalidConnector, check_number
from clonos.connectors.kit.journalled_source import IdentifiedJournal

PREFETCH: Final = 1_000
CHECKPOINTED_PREFETCH: Final = 10_000
PREFETCH_MAX: Final = 65_535
REMEMBERED_PER_CREDIT: Final = 4
RECEIVE_BYTES: Final = 256 << 10

Tag = TypeVar("Tag")


class QueueOptions(TypedDict, total=False):
    """When messages are acknowledged, and how many are sent ahead of that and remembered after it."""

    prefetch: int | None
    acknowledge: Annotated[Literal["journal", "checkpoint"], "journal"]
    remember: int | None


class QueueLimits(NamedTuple):
    """Options of a queue as they are used."""

    waits_for_checkpoints: bool
    prefetch: int
    identities_retained: int


def queue_limits(connector: str, options: QueueOptions, identity: str | None) -> QueueLimits:
    """Returns options with their defaults; ``identity`` is what tells a message from others.

    Raises: InvalidConnector: they cannot work.
    """
    acknowledge, prefetch, remember = options["acknowledge"], options.get("prefetch"), options.get("remember")
    if acknowledge not in ("journal", "checkpoint"):
        raise InvalidConnector(connector, f"acknowledge is {acknowledge!r:.80}", 'Give "journal" or "checkpoint".')
    waits = acknowledge == "checkpoint"
    if waits and identity is None:
        problem = "acknowledge='checkpoint' does not go with identity=None"
        raise InvalidConnector(connector, problem, "Leave one of them out.")
    if prefetch is None:
        prefetch = CHECKPOINTED_PREFETCH if waits else PREFETCH
    check_number(connector, "prefetch", prefetch, "messages", PREFETCH_MAX)
    retained = REMEMBERED_PER_CREDIT * prefetch if remember is None else remember
    check_number(connector, "remember", retained, "identities")
    return QueueLimits(waits, prefetch, retained)


class QueuedJournal(IdentifiedJournal):
    """Description of a queue; the slot of the reading task connects."""

    @abstractmethod
    def feed(self, offset_bytes: int, waits_for_checkpoints: bool) -> QueuedFeed[Any]:
        """Connects.

        Raises: SystemRefused, SystemUnreachable, ExtraMissing, SecretMissing, InvalidConnector.
        """

    def connect(self, offset_bytes: int) -> QueuedFeed[Any]:
        """Connects. Raises: as ``feed``."""
        return self.feed(offset_bytes, False)


class CheckpointedJournal(QueuedJournal):
    """Queue whose messages are acknowledged when checkpoints have them (``AcknowledgedSource``)."""

    _feed: QueuedFeed[Any] | None = None  # of this process

    def connect(self, offset_bytes: int) -> QueuedFeed[Any]:
        """See ``QueuedJournal``."""
        self._feed = self.feed(offset_bytes, True)
        return self._feed

    def acknowledge(self, _split: bytes, mark: bytes) -> None:
        """Acknowledges the messages that are in the state of checkpoints."""
        if self._feed is not None:
            self._feed.acknowledge_to(int(mark))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_feed"}


class QueuedFeed(Generic[Tag]):
    """Consumer of a queue (``ProducerConnection``). A tag is what its broker calls a delivery."""

    def __init__(self, offset_bytes: int, waits_for_checkpoints: bool) -> None:
        self._waits_for_checkpoints = waits_for_checkpoints
        self._received_bytes = offset_bytes
        self._arrived: SimpleQueue[tuple[Tag, bytes]] = SimpleQueue()
        self._unacknowledged: deque[tuple[int, Tag]] = deque()  # offsets after messages

    @abstractmethod
    def check(self) -> None:
        """Raises: SystemUnreachable, SystemRefused: the connection has ended."""

    @abstractmethod
    def confirm(self, tags: list[Tag]) -> None:
        """Acknowledges deliveries, all that were not acknowledged up to the last one."""

    @abstractmethod
    def close(self) -> None:
        """Closes the connection, after the acknowledgements."""

    def arrived(self, tag: Tag, record: bytes) -> None:
        """Takes a message in its journalled form, in the thread of the connection."""
        self._arrived.put((tag, record))

    def receive(self, wait_ms: int) -> bytes | None:
        """Returns messages as soon as there are any, b"" if there are none within ``wait_ms``. Raises: as ``check``."""
        self.check()  # what has arrived and is not journalled is delivered again
        records: list[bytes] = []
        size = 0
        try:
            tag, record = self._arrived.get(timeout=wait_ms / 1000)
            while True:
                records.append(record)
                size += len(record)
                self._unacknowledged.append((self._received_bytes + size, tag))
                if size >= RECEIVE_BYTES:
                    break
                tag, record = self._arrived.get_nowait()
        except Empty:
            pass
        self._received_bytes += size
        return b"".join(records)

    def acknowledge(self, offset_bytes: int) -> None:
        """Acknowledges the messages that are journalled, unless checkpoints decide."""
        if not self._waits_for_checkpoints:
            self.acknowledge_to(offset_bytes)

    def acknowledge_to(self, offset_bytes: int) -> None:
        """Acknowledges the messages before an offset of the journal."""
        tags = []
        while self._unacknowledged and self._unacknowledged[0][0] <= offset_bytes:
            tags.append(self._unacknowledged.popleft()[1])
        if tags:
            self.confirm(tags)
