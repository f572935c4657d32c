"""Reader of one split: the messages of a stream in their order, from a sequence number."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

from clonos.connectors.codecs import Codec
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.connectors.kit.payloads import decoded
from clonos.connectors.kit.splits import next_number, stamped
from clonos.connectors.nats.loop_thread import LoopThread
from clonos.connectors.nats.message import Message
from clonos.connectors.nats.nats_address import NatsAddress
from clonos.connectors.nats.nats_errors import NATS
from clonos.connectors.nats.pump import Pump
from clonos.connectors.nats.stream_splits import split_of
from clonos.operators.connector_contract import PendingInput

OPEN_S: Final = 70.0
"""Time in which the messages have to come that were there when a split was opened."""


class StreamReader:
    """Reader of a source (``SplitReader``). A mark is the sequence of the next message.

    ``read`` does not wait for messages that may come. It does wait for those that were there when the stream was
    opened: a successor has to find what its predecessor has read.
    """

    def __init__(self, server: NatsAddress, codec: Codec[bytes, Any] | None, is_stamped: bool) -> None:
        self._server, self._codec, self._is_stamped = server, codec, is_stamped
        self._split = split_of(b'["","",1,-1,""]')
        self._next = 1
        self._has_ended = False
        self._thread: LoopThread | None = None
        self._pump: Pump | None = None
        self._pumping: Future[Any] | None = None

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Begins to fetch the messages of a split.

        Raises: SplitMalformed: the mark is no sequence.
        """
        self._split = found = split_of(split)
        self._next = next_number(mark, found.start, "sequence of NATS")
        self._has_ended = 0 <= found.end <= self._next
        if not self._has_ended:
            self._thread = LoopThread("nats.source")
            self._pump = Pump(self._server, found, self._next)
            self._pumping = self._thread.start(self._pump.run())

    def read(self, records_max: int) -> list[Any] | None:
        """Returns messages that have come; [] if there are none at the moment, None at the end of a bounded split.

        Raises: SystemUnreachable: there has been no server for a minute. SystemRefused, MessagesLost.
        """
        if self._has_ended:
            return None
        assert self._pump is not None, "a split is opened before it is read"
        assert self._thread is not None, "a split is opened before it is read"
        messages, self._next, are_all = self._pump.take(records_max, OPEN_S)
        self._thread.soon(self._pump.wake)
        if not messages and not are_all:
            doing = f"reading the stream {self._split.stream}"
            raise SystemUnreachable(
                NATS, self._server.place, doing, f"sequence {self._next} has not come in {OPEN_S:g} s"
            )
        end = self._split.end
        if end >= 0:
            self._has_ended = are_all or self._next >= end
            messages = [each for each in messages if each.sequence < end]
            if self._has_ended and not messages:
                return None
        return self._decoded(messages)

    def pending(self) -> PendingInput | None:
        """See ``connector_contract.PendingReader``: not known before the first answer, nor up to an end of the job."""
        found = None if self._pump is None or self._split.end >= 0 else self._pump.pending()
        return None if found is None else PendingInput(found)

    def mark(self) -> bytes:
        """Returns the sequence of the next message."""
        return b"%d" % self._next

    def close(self) -> None:
        """Ends the connection."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def _decoded(self, messages: list[Message]) -> list[Any]:
        if self._codec is None:
            records: list[Any] = list(messages)
        else:
            payloads = [message.data for message in messages]
            records = decoded(self._codec.decode, payloads, lambda at: (messages[at], self._where(messages[at])))
        if not self._is_stamped:
            return records
        return stamped(records, (message.timestamp for message in messages))

    def _where(self, message: Message) -> str:
        return f"sequence {message.sequence} of the stream {self._split.stream}, subject {message.subject}"
