"""Sinks that take the keys and timestamps of their rows, beside sinks that do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clonos import SinkRow, kafka
from clonos.api.graph import JobGraph
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kafka.transactional import outputs_of
from clonos.core.model.options import Options
from clonos.core.values import decode_rows, encode_rows
from clonos.operators.connector_contract import WriterContext
from clonos.operators.row_errors import RowNotWritable
from clonos.testing import Outputs, crash_test
from tests.unit.operators.driver import Given, run
from tests.unit.operators.samples import ColumnsGiven

SECOND_NS = 1_000_000_000
ORDERS: list[dict[str, Any]] = [{"who": "ann", "at": 1_700_000_000 + second, "n": second} for second in range(6)]
STAMPED = {(order["n"], order["who"], order["at"] * SECOND_NS) for order in ORDERS}


class Written:
    """Transactional sink whose parts are its rows."""

    def __init__(self, takes_keys_and_times: bool = True) -> None:
        self.takes_keys_and_times = takes_keys_and_times

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        pass

    def writer(self) -> Any:
        return Rows()

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        pass


class Rows:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def open(self, context: WriterContext) -> None:
        pass

    def write(self, rows: list[Any]) -> None:
        self.rows += rows

    def write_columns(self, batch: Any) -> None:
        self.write(batch.to_pylist())

    def prepare(self, checkpoint: int) -> bytes | None:
        rows, self.rows = self.rows, []
        return encode_rows(rows) if rows else None

    def close(self) -> None:
        pass


class WrittenAtOnce:
    """Immediate sink, whose rows the driver of these tests takes."""

    takes_keys_and_times = True

    def immediate_writer(self) -> Any:
        raise AssertionError("the driver takes the rows")


def prepared(graph: JobGraph) -> list[Any]:
    found = run(graph)
    return [row for parts in found.prepared.values() for part in parts for row in decode_rows(part)]


def orders(source: Any = None, **options: Any) -> tuple[JobGraph, Any]:
    graph = JobGraph("orders")
    return graph, graph.source(Given(ORDERS) if source is None else source, **options)


@pytest.mark.parametrize("source", [Given(ORDERS), ColumnsGiven(ORDERS)], ids=["rows", "columns"])
def test_a_sink_after_a_key_gets_the_key_and_the_timestamp_of_each_row(source: Any) -> None:
    graph, stream = orders(source, timestamps="at")
    stream.key_by("who").sink(Written())
    rows = prepared(graph)
    assert {(row.value["n"], row.key, row.timestamp) for row in rows} == STAMPED
    assert all(type(row) is SinkRow and row.value in ORDERS for row in rows)


@pytest.mark.parametrize("source", [Given(ORDERS), ColumnsGiven(ORDERS)], ids=["rows", "columns"])
def test_a_sink_in_the_task_of_the_step_before_it_gets_timestamps_and_no_keys(source: Any) -> None:
    graph, stream = orders(source, timestamps="at")
    stream.filter(lambda order: order["n"] > 0).sink(Written())
    rows = prepared(graph)
    assert {(row.value["n"], row.key, row.timestamp) for row in rows} == {
        (n, None, at) for n, _, at in STAMPED if n > 0
    }


def test_an_immediate_sink_gets_keys_and_timestamps_too() -> None:
    graph, stream = orders(timestamps="at")
    stream.key_by("who").sink(WrittenAtOnce(), name="out")
    [rows] = run(graph).written.values()
    assert {(row.value["n"], row.key, row.timestamp) for row in rows} == STAMPED


def test_rows_without_event_time_have_no_timestamp() -> None:
    graph, stream = orders()
    stream.key_by("who").sink(Written())
    assert {(row.key, row.timestamp) for row in prepared(graph)} == {("ann", None)}


def test_another_sink_gets_bare_rows_and_no_step_is_added_in_front_of_it() -> None:
    graphs = []
    for takes in (False, True):
        graph, stream = orders(timestamps="at")
        stream.map(lambda order: order).sink(Written(takes))
        graphs.append(graph)
    assert sorted(row["n"] for row in prepared(graphs[0])) == list(range(6))
    nodes = [sum(len(vertex.nodes) for vertex in graph.compile(Options(), parallelism=2).vertices) for graph in graphs]
    assert nodes[1] == nodes[0] + 1


def test_a_sink_of_the_user_gets_keys_and_timestamps_in_simulated_worlds() -> None:
    graph, stream = orders(Given([]), timestamps="at")
    stream.key_by("who").sink(Written(), name="out")

    def check(outputs: Outputs) -> None:
        assert {(row.value["n"], row.key, row.timestamp) for row in outputs["out"]} == STAMPED

    crash_test(graph, ORDERS, range(3), check)


# ---------------------------------------------------------------------- Kafka


def messages(sink: Any, rows: list[Any]) -> list[Any]:
    writer = sink.writer()
    writer.open(WriterContext("job", "out/0", 0, 1, 1))
    writer.write(rows)
    [output] = outputs_of([writer.prepare(1)]).values()
    return list(output)


def kafka_sink(**options: Any) -> Any:
    return kafka.sink("out", servers="127.0.0.1:9", mode="transactional", **options)


def test_a_message_of_kafka_gets_the_key_and_the_timestamp_of_its_row() -> None:
    sink = kafka_sink(key=kafka.KEY, timestamp=kafka.TIMESTAMP, value="n")
    assert sink.takes_keys_and_times
    [message] = messages(sink, [SinkRow({"n": 5}, ["ann", 1], 1_700_000_000_123_456_789)])
    assert (message.key, message.timestamp_ms, message.value) == (b'["ann",1]', 1_700_000_000_123, b"5")


def test_fields_of_the_row_are_found_beside_the_key_of_the_stream() -> None:
    [message] = messages(kafka_sink(key="n", timestamp=kafka.TIMESTAMP), [SinkRow({"n": 5}, "ann", 7_000_000)])
    assert (message.key, message.timestamp_ms, msgspec.json.decode(message.value)) == (b"5", 7, {"n": 5})
    assert not kafka_sink(key="n").takes_keys_and_times


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"key": kafka.KEY}, "its key: the stream has none: put key_by() in front of the sink"),
        ({"timestamp": kafka.TIMESTAMP}, "its timestamp: the stream has none: give its source timestamps="),
    ],
)
def test_a_row_without_what_the_message_needs_is_refused_with_advice(options: Any, sentence: str) -> None:
    with pytest.raises(RowNotWritable) as caught:
        messages(kafka_sink(**options), [SinkRow({"n": 5}, None, None)])
    assert sentence in str(caught.value)


def test_the_key_of_the_stream_is_no_value_of_a_message() -> None:
    with pytest.raises(InvalidConnector, match=r"timestamp is <OfStream\.KEY"):
        kafka_sink(timestamp=kafka.KEY)
