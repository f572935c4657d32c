"""Clients of a Kafka cluster: their options, and what their errors mean for a job. The library is loaded where it is
used, in the processes that connect."""

from __future__ import annotations

import difflib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final, TypeVar

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kafka.kafka_errors import KAFKA, UnknownTopic
from clonos.connectors.kit.external_system import SystemRefused, SystemUnreachable
from clonos.core.model.errors import ClonosError

REQUEST_S: Final = 30.0
"""Time in which a broker has to answer."""

START_S: Final = 15.0
"""The same at the start of a job, whose user waits."""

SLICE_S: Final = 1.0
"""Time after which a waiting request looks for errors that were reported meanwhile."""

OWN_OPTIONS: Final = frozenset(
    {
        *("bootstrap.servers", "group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset"),
        *(
            "transactional.id",
            "enable.idempotence",
            "acks",
            "enable.partition.eof",
            "error_cb",
            "transaction.timeout.ms",
        ),
    }
)
"""Options that the connectors set, because their guarantees depend on them."""

REFUSALS: Final = (
    *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"),
    *("CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"),
    *("ILLEGAL_SASL_STATE", "_SSL", "INVALID_TRANSACTION_TIMEOUT", "_UNSUPPORTED_FEATURE"),
)
"""Names of errors that no retry repairs."""

PASSING: Final = (
    *("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "UNSTABLE_OFFSET_COMMIT"),
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "_NO_OFFSET"),
    *("CONCURRENT_TRANSACTIONS", "BROKER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION"),
)
"""Names of errors that pass while a broker starts or changes, and that the library does not call retriable."""

PAUSE_S: Final = 0.05
"""Pause before a request is repeated."""

LIBRARY_LOGGER: Final = logging.getLogger("clonos.kafka.librdkafka")
"""Log of the client library; what it says that matters is in the errors of the connectors."""

LIBRARY_LOGGER.setLevel(logging.CRITICAL + 1)

Result = TypeVar("Result")


@dataclass(frozen=True)
class Cluster:
    """Addresses of a cluster, and options of librdkafka. A value may be a secret, which is looked up when a client is
    created."""

    connector: str
    servers: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if type(self.servers) is not str or not self.servers.strip():
            raise InvalidConnector(
                self.connector, f"servers is {self.servers!r}", 'Give "host:port", several with commas.'
            )
        if own := sorted(OWN_OPTIONS & set(self.options)):
            raise InvalidConnector(
                self.connector, f"options has {', '.join(own)}, which the connector sets itself", "Leave it out."
            )

    @property
    def namespace(self) -> str:
        """Returns the name of the cluster in records of lineage: its first address."""
        return f"kafka://{self.servers.partition(',')[0].strip()}"

    def client(self, kind: str, settings: Mapping[str, Any]) -> Client:
        """Creates a client; ``kind`` is the class of the library. Options of the user go before ``settings``.

        Raises: SystemRefused: the library does not take an option.
        """
        given = {name: getattr(value, "reveal", lambda value=value: value)() for name, value in self.options.items()}
        return Client(self.servers, kind, {**settings, **given, "bootstrap.servers": self.servers})


class Reports:
    """Errors that a client of the library has reported. It does not refer to the client, which would never end."""

    def __init__(self) -> None:
        self.refusal: Any = None
        self.last: Any = None
        self.is_down = False  # all brokers

    def on_error(self, error: Any) -> None:
        """Called by the library."""
        self.last = error
        self.is_down |= error.name() == "_ALL_BROKERS_DOWN"
        if error.name() in REFUSALS:
            self.refusal = error


class Client:
    """A client of the library, ``raw``, and the errors that it has reported."""

    def __init__(self, servers: str, kind: str, settings: dict[str, Any]) -> None:
        self.servers = servers
        self._library = KAFKA.library("clonos.kafka")
        self.exception: type[Exception] = self._library.KafkaException
        self._reports = Reports()
        self._pause = threading.Event()  # never set
        settings = {"log_level": 3, "logger": LIBRARY_LOGGER, **settings, "error_cb": self._reports.on_error}
        made = getattr(import_module("confluent_kafka.admin") if kind == "AdminClient" else self._library, kind)
        try:
            self.raw: Any = made(settings)
        except self.exception as error:
            raise SystemRefused(KAFKA, servers, "the options", _text(error.args[0])) from None
        except (TypeError, ValueError) as error:
            raise SystemRefused(KAFKA, servers, "the options", str(error)) from None

    def close(self) -> None:
        """Ends the client and its connections. What a producer has not sent is dropped."""
        raw, self.raw = self.raw, None
        if raw is None:
            return
        with suppress(self.exception):
            if hasattr(raw, "consume"):
                raw.close()
            elif hasattr(raw, "purge"):
                raw.purge()  # its close() would wait for brokers, and warn where there is nothing to abort

    def abandon(self) -> None:
        """Leaves the client to a thread that is blocked in it."""
        self.raw = None

    @property
    def last_error(self) -> str:
        """Returns the text of the error that was reported last; "" for none."""
        return "" if self._reports.last is None else _text(self._reports.last)

    def take_outage(self) -> bool:
        """Returns whether all brokers have been reported as down since the last call."""
        was_down, self._reports.is_down = self._reports.is_down, False
        return was_down

    def check(self, doing: str) -> None:
        """Raises: SystemRefused: the brokers have refused the credentials meanwhile."""
        if self._reports.refusal is not None:
            raise SystemRefused(KAFKA, self.servers, doing, _text(self._reports.refusal))

    def place(self, topic: str, partition: int, offset: int, metadata: str = "") -> Any:
        """Returns a position in a partition, as the library has it."""
        return self._library.TopicPartition(topic, partition, offset, metadata)

    def ask(self, doing: str, call: Callable[[float], Result], limit_s: float = REQUEST_S) -> Result:
        """Returns the result of ``call``, which takes a timeout in seconds, and is repeated while a retry may help.

        Raises: SystemRefused: no retry helps. SystemUnreachable: ``limit_s`` have passed.
        """
        deadline = time.monotonic() + limit_s
        while True:
            remaining_s = deadline - time.monotonic()
            try:
                return call(max(0.05, min(SLICE_S, remaining_s)))
            except self.exception as error:
                found = error.args[0]
            # The error of the library is gone here: it refers to frames that would keep the client.
            with suppress(self.exception):
                self.raw.poll(0)  # errors are reported to it
            self.check(doing)
            if remaining_s <= SLICE_S or not (may_pass(found) or found.name() in PASSING):
                raise self.failure(found, doing)
            self._pause.wait(PAUSE_S)

    def failure(self, error: Any, doing: str) -> ClonosError:
        """Returns what an error of the library means."""
        if error.name() in REFUSALS:
            return SystemRefused(KAFKA, self.servers, doing, _text(error))
        last = self.last_error
        return SystemUnreachable(KAFKA, self.servers, doing, f"{_text(error)}; {last}" if last else _text(error))

    def topics(self, doing: str, limit_s: float = START_S) -> dict[str, Any]:
        """Returns the metadata of all topics by name.

        Raises: as ``ask``.
        """
        return dict(self.ask(doing, lambda wait_s: self.raw.list_topics(timeout=wait_s), limit_s).topics)

    def partitions(self, topic: str, doing: str, limit_s: float = START_S) -> list[int]:
        """Returns the numbers of the partitions of a topic.

        Raises: UnknownTopic: there is no such topic. Else as ``ask``.
        """
        found = self.topics(doing, limit_s)
        if topic not in found or not found[topic].partitions:
            similar = difflib.get_close_matches(topic, found, n=1)
            raise UnknownTopic(self.servers, topic, similar[0] if similar else "")
        return sorted(found[topic].partitions)


def may_pass(error: Any) -> bool:
    """Returns whether a request that failed so may succeed later."""
    return error.retriable() or error.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_WAIT_COORD")


def _text(error: Any) -> str:
    return f"{error.str()} ({error.name()})"
