"""Transactions of one sink task on the brokers: performs the commands of ``numbering``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar

from clonos.connectors.connector_errors import RECORD_CHARACTERS_MAX
from clonos.connectors.kafka.client import Client, Cluster, may_pass
from clonos.connectors.kafka.kafka_errors import message_refused
from clonos.connectors.kafka.numbering import Answer, BeginSession, Command, Commit, Outcome, Read, committed_of
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.core.model.errors import JobError

logger = logging.getLogger("clonos.slot")

TRANSACTION_MS: Final = 10_000
"""Time after which the brokers end an open transaction by themselves."""

RETRY_MS: Final = 4
"""Pause before a request is repeated. Each transaction waits at its begin for the end of the last one."""

FENCINGS: Final = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
ROW_ERRORS: Final = ("MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "_UNKNOWN_PARTITION", "_INVALID_ARG")
"""Names of errors that name a row which can never be written."""

SEND_S: Final = 4.0
"""Time in which the number has to be part of the transaction."""

SEND_MARGIN_S: Final = 2.0
"""Time after which it is clear that the library ignores that."""

IDLE_MS: Final = 4_000
"""Time after which an unused connection is closed, which wakes up a call that is blocked."""

METADATA_MS: Final = 10_000
"""Interval in which a connection is made anew to read metadata, so that a call blocked without any wakes up too."""

Result = TypeVar("Result")


class ProducedRecord(NamedTuple):
    """A message to write. ``timestamp_ms`` 0: the time of the write; ``partition`` -1: by the key."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int
    partition: int


class Transactions:
    """One transactional id, and the group of the same name with the number of the next row."""

    def __init__(self, cluster: Cluster, topic: str, name: str, *, transaction_ms: int = TRANSACTION_MS) -> None:
        self.name = name
        self.transaction_ms = transaction_ms
        self._cluster, self._topic = cluster, topic
        self._producer: Client | None = None
        self._consumer: Client | None = None
        self._messages: Sequence[ProducedRecord] = ()
        self._first = 0
        self._refused: tuple[Any, Any] | None = None  # why a message was not delivered, and its value

    def run(
        self,
        protocol: Generator[Command, Answer, Result],
        messages: Sequence[ProducedRecord] = (),
        first_number: int = 0,
    ) -> Result:
        """Runs a call of the protocol; ``messages`` are the rows from ``first_number`` on.

        Raises: what the protocol raises. MessageRefused, SystemRefused, SystemUnreachable.
        """
        self._messages, self._first = messages, first_number
        answer: Answer = None
        while True:
            try:
                command = protocol.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            answer = self._perform(command)

    def close(self) -> None:
        """Closes the connections. An open transaction is left to its timeout, or to the successor."""
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        for client in (producer, consumer):
            if client is not None:
                client.close()

    # ------------------------------------------------------------------ commands

    def _perform(self, command: Command) -> Answer:
        if isinstance(command, BeginSession):
            return self._begin()
        if isinstance(command, Read):
            return self._read()
        return self._commit(command)

    def _begin(self) -> Outcome:
        """Begins a session on a new connection, because a fenced one cannot be used again."""
        self.close()
        self._producer = self._cluster.client(
            "Producer",
            {
                "transactional.id": self.name,
                "transaction.timeout.ms": self.transaction_ms,
                "linger.ms": 0,
                "partitioner": "murmur2_random",  # as the clients in Java
                "retry.backoff.ms": RETRY_MS,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "connections.max.idle.ms": IDLE_MS,
                "topic.metadata.refresh.interval.ms": METADATA_MS,
                "queue.buffering.max.messages": 1_000_000,
                "delivery.report.only.error": True,
                "on_delivery": self._on_delivery,
            },
        )
        try:
            self._producer.ask(f"beginning transactions as {self.name}", self._producer.raw.init_transactions)
        except SystemUnreachable as error:
            if any(f"({name})" in error.reason for name in FENCINGS):
                return Outcome.FENCED
            raise
        return Outcome.DONE

    def _read(self) -> Answer:
        consumer = self._group()
        place = consumer.place(self._topic, 0, -1)
        (found,) = consumer.ask(f"reading the number of {self.name}", lambda s: consumer.raw.committed([place], s))
        return None if found.offset < 0 else committed_of(found.offset, found.metadata, self.name)

    def _commit(self, command: Commit) -> Outcome:
        assert self._producer is not None, "a session begins first"
        consumer = self._group()
        number = command.committed.number
        place = consumer.place(self._topic, 0, number, command.committed.stamp.text())
        members = consumer.raw.consumer_group_metadata()
        try:
            self._producer.raw.begin_transaction()
            self._produce(command.first, command.end)
            if not self._send_number(place, members):
                return Outcome.IN_DOUBT
            self._end_transaction()
        except self._producer.exception as error:
            return self._after(error.args[0], command)
        return Outcome.DONE

    def _group(self) -> Client:
        """Returns the client of the group, which it never joins."""
        if self._consumer is None:
            self._consumer = self._cluster.client(
                "Consumer",
                {
                    "group.id": self.name,
                    "isolation.level": "read_committed",  # so that a number is read when no transaction is open
                    "enable.auto.commit": False,
                    "reconnect.backoff.max.ms": 500,
                },
            )
        return self._consumer

    # ------------------------------------------------------------------ a transaction

    def _produce(self, first: int, end: int) -> None:
        assert self._producer is not None, "a session begins first"
        producer, topic = self._producer.raw, self._topic
        produce: Callable[..., None] = producer.produce
        self._refused = None
        for number in range(first, end):
            value, key, headers, timestamp_ms, partition = self._messages[number - self._first]
            while True:
                try:
                    produce(topic, value, key, partition, None, None, timestamp_ms, headers)
                    break
                except BufferError:
                    producer.poll(0.05)
                except self._producer.exception as error:
                    self._refused = error.args[0], value
                    raise

    def _on_delivery(self, error: Any, message: Any) -> None:
        """Keeps the largest message of those that were refused: a batch is refused as a whole."""
        value = message.value()
        if error is not None and (self._refused is None or len(value or b"") > len(self._refused[1] or b"")):
            self._refused = error, value

    def _send_number(self, place: Any, members: Any) -> bool:
        """Adds the number to the transaction; returns False if the library does not come back.

        With an unreachable group coordinator this call may ignore its timeout and block for ever (librdkafka issues
        5456 and 5511) until some connection is closed. It is made in a thread, which is left behind with its client if
        it blocks.
        """
        assert self._producer is not None, "a session begins first"
        ended: SimpleQueue[Exception | None] = SimpleQueue()
        send = self._producer.raw.send_offsets_to_transaction
        Thread(target=_send, args=(send, place, members, ended), name="kafka transaction", daemon=True).start()
        try:
            error = ended.get(timeout=SEND_S + SEND_MARGIN_S)
        except Empty:
            self._producer.abandon()
            return False
        del send
        try:
            if error is not None:
                raise error
        finally:
            del error  # it would refer to this frame, and so keep the client
        return True

    def _end_transaction(self) -> None:
        """Commits; calls again while the library asks for it, within the time of a transaction."""
        assert self._producer is not None, "a session begins first"
        deadline = time.monotonic() + 1.5 * self.transaction_ms / 1_000
        while True:
            try:
                self._producer.raw.commit_transaction(2.0)
                return
            except self._producer.exception as error:
                found = error.args[0]
                if found.fatal() or found.txn_requires_abort() or not may_pass(found) or time.monotonic() > deadline:
                    raise

    def _after(self, error: Any, command: Commit) -> Outcome:
        """Returns the answer for a transaction that failed.

        Raises: MessageRefused: because of a row. SystemRefused: the job has no right to it.
        """
        assert self._producer is not None, "a session begins first"
        with suppress(self._producer.exception):  # a fatal error is raised again
            self._producer.raw.poll(0)  # the reports of deliveries
        if self._refused is not None and self._refused[0].name() in ROW_ERRORS:
            refusal, value = self._refused
            raise message_refused(self._topic, repr(value)[:RECORD_CHARACTERS_MAX], refusal.str())
        self._producer.check(f"a transaction as {self.name}")
        failure = self._producer.failure(error, f"a transaction as {self.name}")
        if isinstance(failure, JobError):
            raise failure
        logger.info("rows %d to %d of %s: %s", command.first, command.end - 1, self.name, failure)
        return Outcome.FENCED if error.name() in FENCINGS else Outcome.IN_DOUBT


def _send(send: Callable[..., None], place: Any, members: Any, ended: SimpleQueue[Exception | None]) -> None:
    try:
        send([place], members, SEND_S)
    except Exception as error:  # noqa: BLE001  raised again by the caller
        ended.put(error.with_traceback(None))
    else:
        ended.put(None)
