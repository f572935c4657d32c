"""`kafka.source` on a real broker: starts, ends, new partitions, and everything that can be wrong."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from confluent_kafka import KafkaException, Producer

from clonos import Job, col, collect, files
from clonos.agg import last, sum_
from clonos.connectors import kafka, secrets
from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.kafka.client import Cluster
from clonos.connectors.kafka.kafka_errors import TopicMadeAnew, UnknownTopic
from clonos.connectors.kafka.partitions import Partition, TopicChoice, index_of, partition_of
from clonos.connectors.kafka.topic_ids import TopicIds
from clonos.connectors.kit.external_system import MessagesLost, SystemRefused, SystemUnreachable
from clonos.core.coordinator.coordinator_effects import Ending
from clonos.operators.connector_contract import MalformedRecord, PendingInput
from tests.connectors.kafka.producing import produce, trim
from tests.connectors.servers.kafka import PASSWORD, USER, KafkaServer
from tests.speed import scaled

pytestmark = pytest.mark.connectors

LIMIT_S = scaled(30.0)
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": USER}


def read_all(source: Any, split: bytes, mark: bytes | None = None, count: int | None = None) -> list[Any]:
    """Records of a bounded split, or the first `count` of it."""
    reader = source.reader()
    try:
        reader.open(split, mark)
        found: list[Any] = []
        deadline = time.monotonic() + LIMIT_S
        while count is None or len(found) < count:
            records = reader.read(100)
            if records is None:
                break
            found += records
            assert time.monotonic() < deadline, f"{len(found)} records came"
        return found
    finally:
        reader.close()


def test_each_partition_is_a_split_and_gives_its_records_in_order(broker: KafkaServer) -> None:
    topic = broker.create_topic("order", 3)
    for number in range(3):
        produce(broker, topic, range(number, 3_000, 3), number)
    source = bounded(broker, topic, decode=int)
    splits = source.splits(1)
    topic_id = partition_of(splits[0]).topic_id
    assert topic_id
    parts = [Partition(topic, number, 0, 1_000, topic_id) for number in range(3)]
    assert [partition_of(split) for split in splits] == parts
    assert [read_all(source, split) for split in splits] == [list(range(number, 3_000, 3)) for number in range(3)]


def test_a_reader_knows_how_many_records_it_has_not_read_of_a_partition_that_grows(broker: KafkaServer) -> None:
    topic = broker.create_topic("waiting", 1)
    produce(broker, topic, range(500), 0)
    source = kafka.source(topic, servers=broker.servers, start="earliest", decode=int)
    [split] = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, None)
        assert reader.pending() == PendingInput(500)
        read = len(reader.read(200))
        assert reader.pending() == PendingInput(500 - read)
        while read < 500:
            read += len(reader.read(1_000))
        produce(broker, topic, range(300), 0)
        deadline = time.monotonic() + LIMIT_S
        while read == 500:
            read += len(reader.read(1))
            assert time.monotonic() < deadline
        assert reader.pending() == PendingInput(800 - read)


def bounded(server: KafkaServer, topics: Any, **options: Any) -> Any:
    """A source that ends where the topics end now."""
    return kafka.source(topics, servers=server.servers, until="latest", **options)


def test_a_record_has_its_key_headers_and_timestamp(broker: KafkaServer) -> None:
    topic = broker.create_topic("whole")
    produce(broker, topic, ["a", None], key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    source = bounded(broker, topic)
    first, second = read_all(source, source.splits(1)[0])
    headers = (("h", b"1"), ("h", None))
    assert (first.topic, first.partition, first.offset, first.timestamp) == (topic, 0, 0, 1_700_000_000_123)
    assert (first.key, first.value, first.headers) == (b"k", b"a", headers)
    assert (second.offset, second.value) == (1, None)


def test_a_reader_continues_at_a_mark(broker: KafkaServer) -> None:
    topic = broker.create_topic("marks")
    produce(broker, topic, range(50))
    source = bounded(broker, topic, decode=int)
    (split,) = source.splits(1)
    reader = source.reader()
    reader.open(split, None)
    before = reader.read(20)
    mark = reader.mark()
    reader.close()
    assert before + read_all(source, split, mark) == list(range(50))


def test_values_of_json_are_columns_of_a_schema_and_a_reader_continues_between_them(broker: KafkaServer) -> None:
    topic = broker.create_topic("columns")
    values = [json.dumps({"n": n, "other": [n]}) if n % 7 else ("n" if n % 2 else None) for n in range(40)]
    produce(broker, topic, values)
    source = bounded(broker, topic, schema=pyarrow.schema([("n", pyarrow.int64())]))
    (split,) = source.splits(1)
    expected = [{"n": n} if n % 7 else n for n in range(40)]
    reader = source.reader()
    reader.open(split, None)
    before: list[Any] = []
    while (piece := reader.read(9)) is not None:
        before += rows_of(piece)
        mark = reader.mark()
        after = source.reader()
        after.open(split, mark)
        rest: list[Any] = []
        while (piece := after.read(100)) is not None:
            rest += rows_of(piece)
        after.close()
        assert before + rest == expected, mark
    reader.close()
    assert before == expected


def test_a_history_of_parquet_and_then_a_topic_are_columns_to_the_end_of_the_job(
    tmp_path: Path, broker: KafkaServer
) -> None:
    rows = [{"key": "ab"[n % 2], "n": n} for n in range(400)]
    schema = pyarrow.schema([("key", pyarrow.string()), ("n", pyarrow.int64())])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[:200], schema), tmp_path / "old.parquet")
    topic = broker.create_topic("newer", 2)
    for key in range(2):
        produce(broker, topic, map(json.dumps, rows[200 + key :: 2]), key)
    job, out = Job("columns"), collect()
    both = files.parquet(tmp_path / "old.parquet").then(bounded(broker, topic, schema=schema))
    totals = job.source(both, name="rows").filter(col("n") >= 0, name="all").key_by("key")
    totals.aggregate(n=sum_("n"), last=last("n"), name="totals").sink(out)
    assert not [line for line in job.explain().splitlines() if line.strip().startswith("rows from")]
    assert job.run(slots="thread", store=tmp_path / "store").ending is Ending.FINISHED
    for key in range(2):
        assert [total["last"] for found, total in out.rows if found == "ab"[key]] == list(range(key, 400, 2))


def rows_of(piece: Any) -> list[Any]:
    """Rows, and the offset of each message that is set aside."""
    return piece.to_pylist() if hasattr(piece, "num_rows") else [each.record.offset for each in piece]


def test_a_successor_finds_at_once_whatever_was_there_when_it_opened(broker: KafkaServer) -> None:
    topic = broker.create_topic("replay")
    produce(broker, topic, range(5_000))
    source = unbounded(broker, topic, decode=int)
    reader = source.reader()
    reader.open(source.splits(1)[0], None)
    found: list[int] = []
    while len(found) < 5_000:
        records = reader.read(1_000)
        assert records, "a replay would take this for a loss"
        found += records
    assert found == list(range(5_000))
    assert reader.read(1_000) == []
    reader.close()


def unbounded(server: KafkaServer, topics: Any, **options: Any) -> Any:
    """A source without end."""
    return kafka.source(topics, servers=server.servers, **options)


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 10), ({0: 4}, 4), ("time", 6), ("later", 10)])
def test_a_job_begins_at_the_start_that_its_user_gives(broker: KafkaServer, start: Any, first: int) -> None:
    topic = broker.create_topic(f"start-at-{first}-{len(str(start))}")
    for second in range(10):
        produce(broker, topic, [second], timestamp=1_700_000_000_000 + 1_000 * second)
    instants = {"time": 1_700_000_005.5, "later": 1_800_000_000.0}
    given = datetime.fromtimestamp(instants[start], UTC) if isinstance(start, str) and start in instants else start
    source = unbounded(broker, topic, start=given)
    assert partition_of(source.splits(1)[0]).start == first


def test_only_committed_records_are_read_and_a_bounded_source_ends_after_an_aborted_transaction(
    broker: KafkaServer,
) -> None:
    topic = broker.create_topic("transactions")
    producer = Producer({"bootstrap.servers": broker.servers, "transactional.id": "test"})
    producer.init_transactions(LIMIT_S)
    for values, is_committed in (("ab", True), ("cd", False), ("e", True), ("f", False)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode())
        producer.flush()
        producer.commit_transaction() if is_committed else producer.abort_transaction()
    source = bounded(broker, topic, decode=bytes.decode)
    assert read_all(source, source.splits(1)[0]) == ["a", "b", "e"]


def test_an_empty_partition_ends_at_once(broker: KafkaServer) -> None:
    source = bounded(broker, broker.create_topic("empty"))
    assert read_all(source, source.splits(1)[0]) == []


def test_bytes_that_do_not_decode_are_set_aside_with_their_place(broker: KafkaServer) -> None:
    topic = broker.create_topic("malformed")
    produce(broker, topic, ["1", "{", "2"])
    source = bounded(broker, topic, decode=json.loads)
    one, malformed, two = read_all(source, source.splits(1)[0])
    assert (one, two) == (1, 2)
    assert type(malformed) is MalformedRecord
    assert malformed.record.value == b"{"
    assert "offset 1 of partition 0 of the topic malformed: loads cannot decode this record: JSONDecodeError" in str(
        malformed.error
    )


def test_new_partitions_and_matching_topics_are_found_by_the_task_to_which_they_belong(broker: KafkaServer) -> None:
    from confluent_kafka.cimpl import NewPartitions

    broker.create_topic("found-1")
    source = unbounded(broker, re.compile("found-.*"))
    known = source.splits(2)
    assert source.discover(known, 0, 2) == source.discover(known, 1, 2) == []
    broker.create_topic("found-2")
    broker.create_topic("other")
    admin = broker.admin()
    admin.create_partitions([NewPartitions("found-1", 3)])["found-1"].result()
    new = {(topic, number) for topic, number in [("found-1", 1), ("found-1", 2), ("found-2", 0)]}
    deadline = time.monotonic() + LIMIT_S
    found: list[Any] = []
    while {(split.topic, split.number) for split in found} != new:
        found = [partition_of(split) for index in range(2) for split in source.discover(known, index, 2)]
        assert time.monotonic() < deadline, found
    assert len(found) == 3
    for index in range(2):
        for split in source.discover(known, index, 2):
            described = partition_of(split)
            assert index_of(described.topic, described.number, 2) == index


def test_records_that_retention_has_deleted_are_an_error_and_never_skipped(broker: KafkaServer) -> None:
    topic = broker.create_topic("retention")
    produce(broker, topic, range(10))
    source = bounded(broker, topic, decode=int)
    (split,) = source.splits(1)
    trim(broker, topic, {0: 5})
    with pytest.raises(
        MessagesLost, match=r"offset 0 of partition 0 is next, but Kafka has the offsets from 5 up to 10"
    ):
        read_all(source, split)
    assert read_all(source, split, b"5") == [5, 6, 7, 8, 9]


def test_an_offset_after_the_end_of_a_topic_that_was_created_again_is_an_error(broker: KafkaServer) -> None:
    source = unbounded(broker, broker.create_topic("anew"))
    with pytest.raises(MessagesLost, match="or the topic was created anew"):
        read_all(source, source.splits(1)[0], b"7", 1)


def read_until(reader: Any, deadline: float) -> None:
    while time.monotonic() < deadline:
        reader.read(1)


def made_anew(broker: KafkaServer, topic: str) -> None:
    """Deletes a topic and creates it again, which works once the deletion has ended."""
    admin = broker.admin()  # kept while the request is on its way
    admin.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            broker.create_topic(topic)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            return


def test_a_new_topic_of_the_same_name_with_more_records_is_an_error(broker: KafkaServer) -> None:
    topic = broker.create_topic("made-anew")
    produce(broker, topic, range(3))
    source = unbounded(broker, topic, decode=int)
    (split,) = source.splits(1)
    began_id = partition_of(split).topic_id
    made_anew(broker, topic)
    produce(broker, topic, range(10, 18))
    with pytest.raises(TopicMadeAnew, match=r"deleted and made anew: .*afresh with --overwrite") as raised:
        read_all(source, split, b"3", 1)
    assert (raised.value.topic, raised.value.began_id) == (topic, began_id)
    fresh = unbounded(broker, topic, decode=int)
    assert read_all(fresh, fresh.splits(1)[0], count=8) == list(range(10, 18))


def test_a_topic_that_is_deleted_and_created_under_a_reader_ends_it(broker: KafkaServer) -> None:
    topic = broker.create_topic("made-anew-meanwhile")
    produce(broker, topic, range(3))
    source = unbounded(broker, topic, decode=int)
    source.topic_ids = TopicIds(source.cluster, ask_every_s=0.05)
    (split,) = source.splits(1)
    with closing(source.reader()) as reader:
        reader.open(split, b"3")
        made_anew(broker, topic)
        produce(broker, topic, range(10, 18))
        deadline = time.monotonic() + LIMIT_S
        with pytest.raises(TopicMadeAnew):
            read_until(reader, deadline)


def test_an_unknown_topic_is_named_with_the_most_similar_one(broker: KafkaServer) -> None:
    broker.create_topic("payments")
    with pytest.raises(UnknownTopic, match=r"has no topic 'payment'\. Did you mean payments\?"):
        unbounded(broker, "payment").splits(1)


def test_an_unreachable_broker_is_named() -> None:
    client = Cluster("kafka.source", "127.0.0.1:9").client("Consumer", {"group.id": "clonos"})
    with pytest.raises(SystemUnreachable, match=r"Kafka at 127\.0\.0\.1:9 failed at looking for .*Connection refused"):
        TopicChoice("order").listed(client, 1.0)
    client.close()


def kafka_source_at(servers: str, **options: Any) -> Any:
    """A source of the topic `order`."""
    return kafka.source("order", servers=servers, options=options)


def test_a_wrong_password_is_refused_at_the_start_and_shown_nowhere(broker: KafkaServer) -> None:
    source = kafka_source_at(broker.sasl_servers, **{**LOGIN, "sasl.password": "wr0ng"})
    with pytest.raises(SystemRefused, match="Invalid username or password") as refused:
        source.splits(1)
    assert "wr0ng" not in f"{refused.value!s} {refused.value!r} {source!r}"


def test_the_right_password_is_taken(broker: KafkaServer) -> None:
    broker.create_topic("secured")
    source: Any = unbounded_at(broker.sasl_servers, "secured", {**LOGIN, "sasl.password": PASSWORD})
    assert len(source.splits(1)) == 1


def unbounded_at(servers: str, topic: str, options: dict[str, Any]) -> Any:
    """A source with options of the library."""
    return kafka.source(topic, servers=servers, options=options)


def test_a_secret_is_looked_up_where_the_client_is_created(
    broker: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("secret")
    source: Any = unbounded_at(broker.sasl_servers, "secret", {**LOGIN, "sasl.password": secrets.env("OF_THE_READER")})
    monkeypatch.setenv("OF_THE_READER", PASSWORD)
    assert len(source.splits(1)) == 1
    monkeypatch.delenv("OF_THE_READER")
    with pytest.raises(secrets.SecretMissing, match=r"\$OF_THE_READER"):
        source.splits(1)


def test_a_split_of_another_topic_is_refused(broker: KafkaServer) -> None:
    source = unbounded(broker, "order")
    source.check_split(Partition("order", 0, 0, -1, "").encoded())
    for split in (Partition("passwords", 0, 0, -1, "").encoded(), b"{", Partition("order", -1, 0, -1, "").encoded()):
        with pytest.raises(SplitMalformed):
            source.check_split(split)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"start": "first"}, "start is 'first'"),
        ({"start": datetime(2026, 1, 1)}, "Give the datetime a time zone"),
        ({"start": {"0": 1}}, "Offsets are a dict"),
        ({"until": "now"}, "until is 'now'"),
        ({"idle_after": "1s"}, "idle_after without out_of_order"),
        ({"options": {"group.id": "x"}}, r"options has group\.id, which the connector sets itself"),
        ({"servers": ""}, "servers is ''"),
    ],
)
def test_an_option_that_cannot_work_is_refused_when_the_job_is_described(options: Any, sentence: str) -> None:
    with pytest.raises(InvalidConnector, match=sentence):
        kafka.source("order", **{"servers": "127.0.0.1:9", **options})


def test_an_offset_that_a_partition_does_not_have_is_refused(broker: KafkaServer) -> None:
    topic = broker.create_topic("bounds")
    produce(broker, topic, range(3))
    wrong = {4: "It has the offsets 0 to 3", None: "no offset for partition 0"}
    cases = [({} if offset is None else {0: offset}, text) for offset, text in wrong.items()]
    for start, sentence in [*cases, ({0: 0, 1: 0}, "the partition 1, which does not exist")]:
        with pytest.raises(InvalidConnector, match=sentence):
            unbounded(broker, topic, start=start).splits(1)
