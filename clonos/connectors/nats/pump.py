"""Fetching of the messages of a split ahead of its reader, in a thread of their connection.

It asks for a few messages at a time, through a consumer of its own that begins after the last message that has come.
The consumer and the connection may vanish at any time, for example with the server: then there are new ones.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from typing import Any, Final

from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.connectors.nats.message import Message, consumer_sequence, message_of, pending_after
from clonos.connectors.nats.nats_address import Connection, NatsAddress
from clonos.connectors.nats.nats_errors import NATS
from clonos.connectors.nats.stream_splits import StreamSplit, check_sequences, consumer_config
from clonos.core.model.errors import ClonosError

logger = logging.getLogger("clonos.slot")

DOWN_S: Final = 60.0
"""Time without a server after which a reader fails, and with it the attempt of its task."""

BATCH_MESSAGES: Final = 1_000
BATCH_BYTES: Final = 4 << 20
AHEAD_MESSAGES: Final = 10_000
WAIT_S: Final = 1.0
"""Time that a request for messages waits at the server."""

BACKOFF_FIRST_S: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
SECOND_NS: Final = 1_000_000_000
TOO_SMALL: Final = "message size exceeds maxbytes"
ENDED_REQUEST: Final = ("", "404", "408")
TOO_MANY: Final = "409"
HEARTBEAT: Final = "100"


class ConsumerLost(Exception):
    """The consumer has vanished, or has skipped messages: a new one is needed."""


class Pump:
    """Messages of a split that have come and were not taken. Its ``run`` fetches them."""

    def __init__(
        self,
        server: NatsAddress,
        split: StreamSplit,
        sequence: int,
        batch_bytes: int = BATCH_BYTES,
        down_s: float = DOWN_S,
    ) -> None:
        """Begins at a sequence; a request asks for at most ``batch_bytes``."""
        self._server, self._split = server, split
        self._batch_bytes, self._down_s = batch_bytes, down_s
        self._changed = threading.Condition()
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._seen = sequence  # all messages before it have come
        self._is_caught_up = False
        self._unsent: int | None = None  # messages after those that have come, by the last answer; None before it
        self._failure: ClonosError | None = None
        self._space: asyncio.Event | None = None
        self._answered_s = 0.0  # when a request for messages was last answered

    def take(self, messages_max: int, wait_s: float) -> tuple[list[Message], int, bool]:
        """Returns messages, the sequence after them and all that is not for this split, and whether these were all.

        Waits for messages that were in the stream when it was opened.

        Raises: SystemUnreachable, SystemRefused, MessagesLost: there are none, and will be none.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._messages or self._is_caught_up or self._failure, wait_s)
            if not self._messages and self._failure is not None:
                raise self._failure
            count = min(messages_max, len(self._messages))
            taken = [self._messages.popleft() for _ in range(count)]
            self._bytes -= sum(len(each.data) for each in taken)
            if self._messages:
                return taken, taken[-1].sequence + 1, False
            return taken, self._seen, self._is_caught_up

    def pending(self) -> int | None:
        """Returns how many messages were not taken, by the last answer of the server; None before the first one."""
        with self._changed:
            return None if self._unsent is None else len(self._messages) + self._unsent

    def has_space(self) -> bool:
        """Returns whether more messages may come."""
        with self._changed:
            return self._bytes < 2 * self._batch_bytes and len(self._messages) < AHEAD_MESSAGES

    def wake(self) -> None:
        """Lets a fetching go on that waits for space, in its thread."""
        if self._space is not None:
            self._space.set()

    # ------------------------------------------------------------------ the thread of the connection

    async def run(self) -> None:
        """Fetches messages until it is cancelled or fails for good."""
        self._space = asyncio.Event()
        self._answered_s = time.monotonic()
        backoff_s = BACKOFF_FIRST_S
        while True:
            before_s = self._answered_s
            try:
                await self._connected()
            except SystemUnreachable as error:
                if self._answered_s != before_s:
                    backoff_s = BACKOFF_FIRST_S
                    logger.warning("the source of the stream %s waits: %s", self._split.stream, error)
                if time.monotonic() - self._answered_s > self._down_s:
                    return self._fail(error)
            except ClonosError as error:
                return self._fail(error)
            except Exception as error:  # noqa: BLE001  something that nats-py does not promise
                return self._fail(self._server.failure(f"reading the stream {self._split.stream}", error))
            await asyncio.sleep(backoff_s)
            backoff_s = min(BACKOFF_S_MAX, 2 * backoff_s)

    async def _connected(self) -> None:
        connection = await Connection.opened(self._server)
        backoff_s = BACKOFF_FIRST_S
        try:
            while True:
                before_s = self._answered_s
                lost = await self._consumed(connection)
                logger.info("the source of the stream %s needs a new consumer: %s", self._split.stream, lost)
                if time.monotonic() - self._answered_s > self._down_s:
                    reason = f"each of its consumers vanishes: {lost}"
                    raise SystemUnreachable(
                        NATS, self._server.place, f"reading the stream {self._split.stream}", reason
                    )
                backoff_s = BACKOFF_FIRST_S if self._answered_s != before_s else min(BACKOFF_S_MAX, 2 * backoff_s)
                await asyncio.sleep(backoff_s)
        finally:
            await connection.close()

    async def _consumed(self, connection: Connection) -> ConsumerLost:
        """Fetches messages by one consumer; returns what has ended it.

        Raises: SystemUnreachable, SystemRefused, MessagesLost.
        """
        try:
            await self._consume(connection)
        except ConsumerLost as error:
            return error
        raise AssertionError("a consumer is read until something ends it")

    async def _consume(self, connection: Connection) -> None:
        """Fetches messages by one consumer.

        Raises: ConsumerLost. SystemUnreachable, SystemRefused, MessagesLost.
        """
        split, jetstream = self._split, connection.jetstream
        doing = f"reading the stream {split.stream}"
        info = await connection.answer(doing, jetstream.stream_info(split.stream))
        check_sequences(split, info, self._seen)
        subject = {"filter_subject": split.subject} if split.subject else {}
        config = consumer_config(deliver_policy="by_start_sequence", opt_start_seq=self._seen, **subject)
        consumer = await connection.answer(doing, jetstream.add_consumer(split.stream, config))
        unsent = int(consumer.num_pending or 0)
        self._arrived([], self._seen if unsent else info.state.last_seq + 1, unsent)
        request = _Request(connection, split.stream, consumer.name)
        await connection.answer(doing, request.subscribe())
        try:
            await self._fetch(connection, request)
        finally:
            await request.close()

    async def _fetch(self, connection: Connection, request: _Request) -> None:
        doing, is_small = f"reading the stream {self._split.stream}", False
        while True:
            await self._await_space()
            limits = {"batch": 1} if is_small else {"batch": BATCH_MESSAGES, "max_bytes": self._batch_bytes}
            messages, pending, is_small = await connection.answer(doing, request.messages(limits))
            if messages:
                await self._check_gap(connection, messages)
                self._arrived(messages, messages[-1].sequence + 1, pending)
            elif not is_small:
                await self._look(connection, request)
            self._answered_s = time.monotonic()

    async def _check_gap(self, connection: Connection, messages: list[Message]) -> None:
        """Checks that sequences which were skipped are of other subjects, or were deleted one by one.

        Raises: MessagesLost: the limits of the stream have removed them.
        """
        if messages[-1].sequence + 1 - self._seen != len(messages):
            doing = f"reading the stream {self._split.stream}"
            info = await connection.answer(doing, connection.jetstream.stream_info(self._split.stream))
            expected = self._seen
            for message in messages:
                if message.sequence != expected:
                    check_sequences(self._split, info, expected)
                    return
                expected += 1

    async def _look(self, connection: Connection, request: _Request) -> None:
        """Notes that no message has come for a while because there is none.

        Raises: ConsumerLost: there is no such consumer.
        """
        stream, jetstream = self._split.stream, connection.jetstream
        doing = f"reading the stream {stream}"
        info = await connection.answer(doing, jetstream.stream_info(stream))
        check_sequences(self._split, info, self._seen)
        try:
            consumer = await connection.answer(doing, _found(jetstream.consumer_info(stream, request.consumer)))
        except LookupError:
            consumer = None
        if consumer is None:
            raise ConsumerLost("the server has it no more")
        if consumer.num_pending == 0 and consumer.delivered.consumer_seq == request.delivered:
            self._arrived([], info.state.last_seq + 1, 0)

    async def _await_space(self) -> None:
        assert self._space is not None, "it runs"
        while not self.has_space():
            self._space.clear()
            if not self.has_space():
                await self._space.wait()
                self._answered_s = time.monotonic()  # nothing was asked meanwhile

    def _arrived(self, messages: list[Message], seen: int, unsent: int) -> None:
        with self._changed:
            self._unsent = unsent
            self._messages.extend(messages)
            self._bytes += sum(len(each.data) for each in messages)
            self._seen = max(self._seen, seen)
            self._is_caught_up = self._is_caught_up or not unsent
            self._changed.notify_all()

    def _fail(self, error: ClonosError) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()


class _Request:
    """Requests for messages of one consumer, one after the other."""

    def __init__(self, connection: Connection, stream: str, consumer: str) -> None:
        self.consumer = consumer
        self._raw = connection.raw
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._inbox = self._raw.new_inbox()
        self._subscription: Any = None
        self.delivered = 0  # messages of the consumer that have come
        self._is_broken = False  # one is missing
        self._missing = 0  # messages that the server still owes to the last request; 0 when that has ended
        self._has_come = asyncio.Event()
        self._given: list[Message] = []
        self._pending = 0
        self._status = self._reason = ""

    async def subscribe(self) -> None:
        """Subscribes to the answers."""
        self._subscription = await self._raw.subscribe(self._inbox, cb=self._on_message)

    async def close(self) -> None:
        """Ends the subscription."""
        if not self._raw.is_closed and self._subscription is not None:
            await self._subscription.unsubscribe()

    async def messages(self, limits: dict[str, int]) -> tuple[list[Message], int, bool]:
        """Returns messages as soon as there are any, how many more there are, and whether the next one is too large.

        Returns none if none has come within a second, or if the next one has more bytes than the limit.

        Raises: ConsumerLost: a message is missing, or the consumer has ended.
        """
        if not self._missing and not self._given and not self._is_broken:
            self._missing, self._status = limits["batch"], ""
            request = {"expires": round(WAIT_S * SECOND_NS), **limits}
            await self._raw.publish(self._subject, json.dumps(request).encode(), reply=self._inbox)
        try:
            await asyncio.wait_for(self._has_come.wait(), 2 * WAIT_S)
        except TimeoutError:  # even a request without messages is answered, unless there is no consumer
            raise ConsumerLost("it does not answer") from None
        self._has_come.clear()
        given, self._given = self._given, []
        is_too_large = self._status == TOO_MANY and TOO_SMALL in self._reason.lower()
        if not given and not is_too_large and (self._is_broken or self._status not in ENDED_REQUEST):
            raise ConsumerLost(f"{self._status} {self._reason}".strip() or "a message is missing")
        return given, self._pending, is_too_large and not given

    async def _on_message(self, raw: Any) -> None:
        if not raw.reply.startswith("$JS.ACK."):
            headers = raw.headers or {}
            if (status := headers.get("Status", "")) != HEARTBEAT:
                self._status, self._reason, self._missing = status, headers.get("Description", ""), 0
                self._has_come.set()
            return
        reply = raw.reply.split(".")
        if consumer_sequence(reply) != self.delivered + 1:
            self._is_broken = True
        if not self._is_broken:
            self.delivered += 1
            self._given.append(message_of(raw, reply))
            self._pending = pending_after(reply)
            self._missing = max(0, self._missing - 1)
        self._has_come.set()


async def _found(asked: Any) -> Any:
    """Returns what is asked for.

    Raises: LookupError: it does not exist.
    """
    from nats.js.errors import NotFoundError

    try:
        return await asked
    except NotFoundError as error:
        raise LookupError(error.description) from None
