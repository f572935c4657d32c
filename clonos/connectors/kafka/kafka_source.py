"""``kafka.source``: the partitions of topics as splits, whose offsets are in the state of the job."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, Required, TypeVar, Unpack, overload

from clonos.connectors.codecs import for_decoding
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kafka.client import Client, Cluster
from clonos.connectors.kafka.kafka_errors import UnknownTopic
from clonos.connectors.kafka.message import Message
from clonos.connectors.kafka.partitions import (
    CONNECTOR,
    Start,
    TopicChoice,
    Topics,
    checked_start,
    gone_after,
    index_of,
    partition_of,
    resolved,
)
from clonos.connectors.kafka.reader import PartitionReader
from clonos.connectors.kafka.topic_ids import TopicIds
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.connectors.kit.history import LATER_ADVICE, HistorySource, LateCut
from clonos.connectors.kit.source_options import LogOptions, is_bounded, own_timestamps
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns
from clonos.operators.lineage import Dataset

if TYPE_CHECKING:
    from pyarrow import Schema

    from clonos.api.event_time import Timestamps
    from clonos.connectors.codecs import Codec
    from clonos.connectors.kit.payload_columns import PayloadColumns

logger = logging.getLogger("clonos.slot")

DISCOVERY_LIMIT_S = 2.0

READERS = "clonos"
"""Name of the group in requests of a source without one. Nothing is committed to it."""

T = TypeVar("T")


class KafkaSource(HistorySource, Generic[T]):
    """Source of the records of topics (``WatchedSource``, ``CheckingSource``). Each partition is a split."""

    routes_malformed = True

    def __init__(
        self,
        topics: TopicChoice,
        cluster: Cluster,
        *,
        start: Start,
        is_bounded: bool,
        decode: Callable[[bytes], Any] | None,
        group: str,
        watch_ns: int,
        own_timestamps: Timestamps | None,
        columns: PayloadColumns | None,
    ) -> None:
        self.topics, self.cluster = topics, cluster
        self.start, self.is_bounded = start, is_bounded
        self.decode, self.group = decode, group
        self.discovery_interval_ns = watch_ns
        self.own_timestamps = own_timestamps
        self.columns, self.gives_columns = columns, columns is not None
        self.topic_ids = TopicIds(cluster)
        self._commits: Client | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the connection of a slot."""
        return {**vars(self), "_commits": None}

    def __repr__(self) -> str:
        return f"{CONNECTOR}({self.topics!r}, servers={self.cluster.servers!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return [Dataset(self.cluster.namespace, name) for name in self.topics.names or [self.topics.shown]]

    def splits(self, parallelism: int) -> list[bytes]:
        """Lists the partitions, with the offsets at which the job begins to read them.

        Raises: UnknownTopic, InvalidConnector, SystemRefused, SystemUnreachable.
        """
        client = self.cluster.client("Consumer", {"group.id": self.group or READERS})
        try:
            places = self.topics.listed(client)
            ids = self.topic_ids.found(topic for topic, _ in places)
            return [found.encoded() for found in resolved(client, places, self.start, self.is_bounded, ids)]
        finally:
            client.close()

    def check_cut(self) -> None:
        """See ``kit.history.CutSource``.

        Raises: LateCut: records at the cut may be gone, or may still come in front of it.
        """
        client = self.cluster.client("Consumer", {"group.id": self.group or READERS})
        try:
            reason = gone_after(client, self.topics.listed(client), self.start)
        finally:
            client.close()
        if reason:
            raise LateCut(repr(self), reason, LATER_ADVICE)

    def discover(self, known: Sequence[bytes], index: int, parallelism: int) -> list[bytes]:
        """Returns the partitions that have been added since, from their first records on."""
        have = {(found.topic, found.number) for found in map(partition_of, known)}
        client = self.cluster.client("Consumer", {"group.id": self.group or READERS})
        try:
            new = [
                place
                for place in self.topics.listed(client, DISCOVERY_LIMIT_S)
                if place not in have and index_of(*place, parallelism) == index
            ]
            ids = self.topic_ids.found(topic for topic, _ in new)
            return [found.encoded() for found in resolved(client, new, "earliest", False, ids)]
        except (SystemUnreachable, UnknownTopic) as error:
            logger.info("no new partitions are looked for now: %s", error)
            return []
        finally:
            client.close()

    def check_split(self, split: bytes) -> None:
        """Checks that a split names a partition of these topics.

        Raises: SplitMalformed: it does not.
        """
        found = partition_of(split)
        if not self.topics.covers(found.topic) or found.number < 0 or found.start < 0:
            raise SplitMalformed("partition of Kafka", split, f"{self!r} does not read it")

    def acknowledge(self, split: bytes, mark: bytes) -> None:
        """Commits the offset of a completed checkpoint to the group, for monitors of its lag; does not wait."""
        if not self.group:
            return
        found = partition_of(split)
        try:
            if self._commits is None:
                self._commits = self.cluster.client("Consumer", {"group.id": self.group, "enable.auto.commit": False})
            place = self._commits.place(found.topic, found.number, int(mark))
            self._commits.raw.commit(offsets=[place], asynchronous=True)
        except Exception as error:  # noqa: BLE001  the job does not need it
            logger.info("the offset of partition %d of %s was not committed: %s", found.number, found.topic, error)

    def column_schema(self) -> Any | None:
        """See ``column_contract.DescribedSource``."""
        return None if self.columns is None else self.columns.schema

    def reader(self) -> PartitionReader:
        """Creates a reader."""
        is_stamped, group = self.own_timestamps is not None, self.group or READERS
        return PartitionReader(self.cluster, self.topic_ids, group, self.decode, self.columns, is_stamped)


class TopicOptions(LogOptions, total=False):
    """Options of ``kafka.source``, which describes them."""

    servers: Required[str]
    start: Annotated[Start, "earliest"]
    watch: Annotated[Duration | None, "30s"]
    group: str | None
    options: Mapping[str, Any] | None


@overload
def source(
    topics: Topics, *, decode: None = None, schema: None = None, **options: Unpack[TopicOptions]
) -> KafkaSource[Message]: ...


@overload
def source(
    topics: Topics,
    *,
    decode: Callable[[bytes], T] | Codec[bytes, T],
    schema: None = None,
    **options: Unpack[TopicOptions],
) -> KafkaSource[T]: ...


@overload
def source(
    topics: Topics, *, decode: Any = None, schema: Schema, **options: Unpack[TopicOptions]
) -> KafkaSource[dict[str, Any]]: ...


@explains_calls
def source(
    topics: Topics, *, decode: Any = None, schema: Any = None, **options: Unpack[TopicOptions]
) -> KafkaSource[Any]:
    """Source of the records of topics, in the order of each partition; those of committed transactions only.

    Args:
        topics: a topic, a list of topics, or ``re.compile(...)`` for all topics whose whole name matches.
        servers: addresses of some brokers: "host:port", several with commas.
        decode: a codec, a type, or a function from the value of a message to a record. Bytes that it does not decode go
            to ``errors=`` with their topic, partition and offset. None: records are of the class ``Message``.
        schema: a ``pyarrow.Schema``, whose columns are read instead: of values of JSON objects, or of the dicts that
            ``decode`` returns. What does not fit them goes to ``errors=``.
        start: where the job begins when it first starts: "earliest", "latest", the first records at or after an aware
            datetime, or the first offset of each partition.
        until: "latest": each partition ends where it ended at the start of the job, and the job with them.
        out_of_order: gives records Kafka's timestamps, and each partition a watermark that far behind its latest one.
        idle_after: time after which a partition without records does not hold event time back any more.
        watch: interval in which new partitions, and topics that match, are looked for. None: never.
        group: a group to which offsets are committed after each completed checkpoint, for monitors of its lag. It has
            no members, and its offsets decide nothing. None: offsets are in the state of the job alone.
        options: options of librdkafka, such as ``{"security.protocol": "SSL"}``. A value may be a secret.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        job.source(kafka.source("orders", servers="localhost:9092", decode=json.loads))
    """
    choice = TopicChoice(topics)
    ends, watch = is_bounded(CONNECTOR, options.get("until"), "latest"), options["watch"]
    codec = None if decode is None else for_decoding(CONNECTOR, decode)
    own = own_timestamps(CONNECTOR, options)
    if schema is not None and own is not None:
        advice = "Leave out out_of_order=, and give job.source timestamps= the name of a column."
        raise InvalidConnector(CONNECTOR, "columns do not have the timestamps of messages", advice)
    return KafkaSource(
        choice,
        Cluster(CONNECTOR, options["servers"], dict(options.get("options") or {})),
        start=checked_start(options["start"], choice),
        is_bounded=ends,
        decode=None if codec is None else codec.decode,
        group=options.get("group") or "",
        watch_ns=0 if ends or watch is None else duration_ns(watch),
        own_timestamps=own,
        columns=None if schema is None else _columns(schema, codec),
    )


def _columns(schema: Any, codec: Codec[bytes, Any] | None) -> PayloadColumns:
    from clonos.connectors.kit.payload_columns import PayloadColumns  # Arrow takes long to load

    return PayloadColumns(CONNECTOR, schema, codec)
