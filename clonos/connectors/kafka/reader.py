"""Reader of one partition: records in order from an offset, those of committed transactions only."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from clonos.connectors.kafka.client import REQUEST_S, Client, Cluster
from clonos.connectors.kafka.kafka_errors import KAFKA, UnknownTopic, records_lost
from clonos.connectors.kafka.message import Message
from clonos.connectors.kafka.partitions import NO_END, Partition, bounds, partition_of
from clonos.connectors.kafka.topic_ids import TopicIds
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.connectors.kit.payloads import decoded
from clonos.connectors.kit.splits import next_number, stamped
from clonos.operators.connector_contract import PendingInput

if TYPE_CHECKING:
    from clonos.connectors.kit.payload_columns import PayloadColumns

logger = logging.getLogger("clonos.slot")

DOWN_S: Final = 60.0
"""Time without a broker after which a reader fails, and with it the attempt of its task."""

MILLISECOND_NS: Final = 1_000_000

SETTINGS: Final = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 100,
    "fetch.queue.backoff.ms": 10,  # by default the client rests for a second when it has 100,000 messages ahead
    "queued.max.messages.kbytes": 16_384,
    "reconnect.backoff.max.ms": 1_000,
}


class PartitionReader:
    """Reader of a source (``SplitReader``). A mark is the offset of the next record.

    ``read`` does not wait for records that may come. It does wait for those that were there when the partition was
    opened: a successor has to find what its predecessor has read. With ``columns`` it returns batches of them.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic_ids: TopicIds,
        group: str,
        decode: Callable[[bytes], Any] | None,
        columns: PayloadColumns | None,
        is_stamped: bool,
    ) -> None:
        self._cluster, self._topic_ids, self._group = cluster, topic_ids, group
        self._decode, self._columns, self._is_stamped = decode, columns, is_stamped
        self._pieces: deque[tuple[int, Any]] = deque()  # with the offset of what comes after each
        self._given = 0  # offset after the last piece that was returned
        self._client: Client | None = None
        self._split = Partition("", 0, 0, NO_END, "")
        self._next = 0  # offset of the next record
        self._known_end = 0  # end of the partition when it was opened
        self._seen_end = 0  # end of the partition, as the client last learnt it
        self._has_ended = False
        self._down_s: float | None = None  # since when no broker has answered

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a partition at an offset.

        Raises: MessagesLost: the partition has no such offset any more. SplitMalformed: the mark is no offset.
        TopicMadeAnew: the topic is another one of the same name. SystemRefused, SystemUnreachable, UnknownTopic.
        """
        self._split = found = partition_of(split)
        self._next = next_number(mark, found.start, "offset of Kafka")
        self._pieces.clear()
        self._client = client = self._cluster.client("Consumer", {**SETTINGS, "group.id": self._group})
        self._topic_ids.enter()
        self._topic_ids.check(found.topic, found.topic_id)
        first, self._known_end = bounds(client, found.topic, found.number)
        if not first <= self._next <= self._known_end:
            raise records_lost(found.topic, found.number, self._next, first, self._known_end)
        self._has_ended, self._seen_end = 0 <= found.end <= self._next, self._known_end
        client.raw.assign([client.place(found.topic, found.number, self._next)])

    def read(self, records_max: int) -> Any:
        """Returns records that have come; [] if there are none at the moment, None at the end of a bounded partition.

        Raises: as ``open``.
        """
        if self._pieces:
            return self._next_piece()
        if self._has_ended:
            return None
        deadline = time.monotonic() + REQUEST_S
        while True:
            is_behind = self._next < self._known_end
            records = self._records(records_max, 0.1 if is_behind else 0.0)
            if records or self._has_ended:
                return records or None
            if not is_behind or self._next >= self._known_end:
                return []
            if time.monotonic() > deadline:
                raise self._unreachable(f"offset {self._next} was not delivered within {REQUEST_S:.0f} s")

    def pending(self) -> PendingInput:
        """See ``connector_contract.PendingReader``: offsets up to the end, some of which hold no record that is read,
        such as those of aborted transactions.
        """
        end, position = self._split.end, self._given if self._pieces else self._next
        return PendingInput(max(0, (min(self._seen_end, end) if end >= 0 else self._seen_end) - position))

    def mark(self) -> bytes:
        """Returns the offset of the next record."""
        return b"%d" % (self._given if self._pieces else self._next)

    def close(self) -> None:
        """Closes the connection."""
        client, self._client = self._client, None
        if client is not None:
            self._topic_ids.leave()
            client.close()

    def _records(self, records_max: int, wait_s: float) -> Any:
        assert self._client is not None, "a split is opened before it is read"
        self._topic_ids.check_lately(self._split.topic, self._split.topic_id)
        given: list[Any] = self._client.raw.consume(records_max, wait_s)
        failed = [message for message in given if message.error() is not None]
        if failed:
            given = [message for message in given if message.error() is None]
        end = self._split.end
        if given:
            self._note_end()
            self._down_s = None
            self._next = given[-1].offset() + 1
            if 0 <= end <= self._next:
                self._has_ended = True
                given = [message for message in given if message.offset() < end]
        for message in failed:
            self._take_event(message)
        if not given and not failed:
            self._check_connection()
        return self._decoded(given)

    def _note_end(self) -> None:
        """Notes the end of the partition that the last answer of the broker told; sends nothing."""
        assert self._client is not None, "a split is opened before it is read"
        place = self._client.place(self._split.topic, self._split.number, self._next)
        found = self._client.raw.get_watermark_offsets(place, cached=True)
        if found is not None:
            self._seen_end = max(self._seen_end, found[1])

    def _take_event(self, message: Any) -> None:
        """Takes over the end of the partition; control records count in its offset.

        Raises: MessagesLost, TopicMadeAnew, UnknownTopic, SystemRefused: the partition cannot be read any more.
        """
        assert self._client is not None, "a split is opened before it is read"
        error, split = message.error(), self._split
        if error.name() == "_PARTITION_EOF":
            self._down_s = None
            self._next = max(self._next, message.offset())
            self._has_ended = 0 <= split.end <= self._next
        elif error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            self._topic_ids.check(split.topic, split.topic_id)
            raise records_lost(split.topic, split.number, self._next, *bounds(self._client, split.topic, split.number))
        elif error.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"):
            raise UnknownTopic(self._cluster.servers, split.topic)
        else:
            failure = self._client.failure(error, f"reading partition {split.number} of {split.topic}")
            if not isinstance(failure, SystemUnreachable):
                raise failure
            self._check_connection()

    def _check_connection(self) -> None:
        """Raises: SystemUnreachable: no broker has answered for a minute. SystemRefused."""
        assert self._client is not None, "a split is opened before it is read"
        client = self._client
        client.check(f"reading the topic {self._split.topic}")
        if self._down_s is None:
            if client.take_outage():
                self._down_s = time.monotonic()
                logger.warning("%s waits for the brokers: %s", self._place, client.last_error)
        elif time.monotonic() - self._down_s > DOWN_S:
            client.ask(f"reading the topic {self._split.topic}", lambda s: client.raw.list_topics(timeout=s), 2.0)
            self._down_s = None

    def _unreachable(self, reason: str) -> SystemUnreachable:
        if self._client is not None and self._client.last_error:
            reason = f"{reason}; {self._client.last_error}"
        return SystemUnreachable(KAFKA, self._cluster.servers, f"reading {self._place}", reason)

    @property
    def _place(self) -> str:
        return f"partition {self._split.number} of the topic {self._split.topic}"

    # ------------------------------------------------------------------ records

    def _decoded(self, messages: list[Any]) -> Any:
        if not messages:
            return []
        if self._columns is not None:
            pieces = self._columns.pieces([each.value() for each in messages], lambda at: self._described(messages[at]))
            self._pieces.extend((messages[end - 1].offset() + 1, piece) for end, piece in pieces)
            return self._next_piece()
        if self._decode is None:
            records: list[Any] = [self._message(message) for message in messages]
        else:
            payloads = [message.value() for message in messages]
            records = decoded(self._decode, payloads, lambda at: self._described(messages[at]))
        if not self._is_stamped:
            return records
        return stamped(records, (message.timestamp()[1] * MILLISECOND_NS for message in messages))

    def _next_piece(self) -> Any:
        self._given, piece = self._pieces.popleft()
        return piece

    def _message(self, message: Any) -> Message:
        split = self._split
        return Message(
            split.topic,
            split.number,
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )

    def _described(self, message: Any) -> tuple[Message, str]:
        return self._message(message), f"offset {message.offset()} of {self._place}"
