"""Ids of topics, by which a topic that was deleted and made anew under the same name is told from the first one.

The readers of a source in one process share a client, which asks every few seconds and never makes a reader wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from clonos.connectors.kafka.client import START_S, Client, Cluster
from clonos.connectors.kafka.kafka_errors import KAFKA, TopicMadeAnew, UnknownTopic

ASK_EVERY_S: Final = 5.0
UNKNOWN_ID: Final = ""
"""Id of a topic for which the brokers know none: those before Kafka 2.8."""

_NO_ID: Final = ("0" * 32, "A" * 22)


class TopicIds:
    """Ids of the topics of one source. A client is open while a reader is."""

    def __init__(self, cluster: Cluster, ask_every_s: float = ASK_EVERY_S) -> None:
        self._cluster, self._ask_every_s = cluster, ask_every_s
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._readers = 0
        self._asked: dict[str, tuple[float, Any]] = {}  # by topic: when, and the answer to come

    def __getstate__(self) -> tuple[Cluster, float]:
        return self._cluster, self._ask_every_s

    def __setstate__(self, described: tuple[Cluster, float]) -> None:
        self.__init__(*described)  # type: ignore[misc]  # a process begins without a client

    def found(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the ids that topics have now, by name.

        Raises: UnknownTopic: a topic does not exist. SystemRefused, SystemUnreachable.
        """
        names = sorted(set(topics))
        if not names:
            return {}
        client = self._cluster.client("AdminClient", {})
        try:
            return {name: _asked_id(client, name, answer) for name, answer in _request(client, names).items()}
        finally:
            client.close()

    def enter(self) -> None:
        """Counts a reader that has opened a partition."""
        with self._lock:
            self._readers += 1

    def leave(self) -> None:
        """Counts a reader that has ended; the last one closes the client."""
        with self._lock:
            self._readers -= 1
            if self._readers == 0 and self._client is not None:
                self._client.close()
                self._client, self._asked = None, {}

    def check(self, topic: str, began_id: str) -> None:
        """Asks for the id of a topic, and waits for the answer.

        Raises: TopicMadeAnew: it is not ``began_id``. UnknownTopic, SystemRefused, SystemUnreachable.
        """
        if began_id != UNKNOWN_ID:
            _compare(topic, began_id, self.found([topic])[topic])

    def check_lately(self, topic: str, began_id: str) -> None:
        """Compares an answer that has come, and asks again when some seconds have passed. Does not wait.

        Raises: TopicMadeAnew: the id is not ``began_id``.
        """
        if began_id == UNKNOWN_ID:
            return
        now_s = time.monotonic()
        asked_s, answer = self._asked.get(topic, (0.0, None))
        # A broker that does not answer is the business of the consumer.
        if answer is not None and answer.done() and answer.exception() is None:
            _compare(topic, began_id, _id_of(answer.result()))
        if now_s - asked_s >= self._ask_every_s:
            with self._lock:
                if self._client is None:
                    self._client = self._cluster.client("AdminClient", {})
                self._asked[topic] = now_s, _request(self._client, [topic])[topic]


def _request(client: Client, names: list[str]) -> Mapping[str, Any]:
    described: Mapping[str, Any] = client.raw.describe_topics(
        KAFKA.library("clonos.kafka").TopicCollection(names), request_timeout=START_S
    )
    return described


def _asked_id(client: Client, topic: str, answer: Any) -> str:
    try:
        return _id_of(answer.result())
    except client.exception as error:
        found = error.args[0]
    client.check(f"asking for the id of the topic {topic}")
    if found.name() == "_UNSUPPORTED_FEATURE":
        return UNKNOWN_ID
    if found.name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
        raise UnknownTopic(client.servers, topic)
    raise client.failure(found, f"asking for the id of the topic {topic}")


def _id_of(description: Any) -> str:
    text = str(description.topic_id)
    return UNKNOWN_ID if text.startswith(_NO_ID) else text


def _compare(topic: str, began_id: str, now_id: str) -> None:
    if now_id not in (began_id, UNKNOWN_ID):
        raise TopicMadeAnew(topic, began_id, now_id)
