"""``redis.sink`` on a real server: numbers, fencing, lost numbers, and rows that are refused."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clonos import codecs
from clonos.connectors import redis
from clonos.connectors.kit.external_system import NumberLost, SystemRefused, SystemUnreachable
from clonos.connectors.redis.entry_sink import FIELDS_MAX, SCRIPT_ROWS
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity
from clonos.operators.row_errors import RowNotWritable
from tests.connectors.redis.streams import add_stream, found
from tests.connectors.servers.redis import PASSWORD, READER, RedisProcess
from tests.unit.connectors.reading import read_raw

pytestmark = pytest.mark.connectors

HASH = "clonos:job-1/out/0"


@pytest.fixture(autouse=True)
def clean(server: RedisProcess) -> None:
    """No task has registered."""
    server.ask("FLUSHALL")


def registered(sink: Any, number: int = 0, generation: int = 0, incarnation: int = 1) -> tuple[Any, Registration]:
    writer = sink.immediate_writer()
    try:
        return writer, writer.register(WriterIdentity("job-1", "out/0", generation, incarnation), number)
    except BaseException:
        writer.close()
        raise


def numbers(server: RedisProcess, key: str) -> list[int]:
    return [json.loads(fields[b"data"]) for _, fields in found(server, key)]


def test_rows_that_are_written_again_are_in_the_stream_once(server: RedisProcess) -> None:
    sink, last = redis.sink("once", url=server.full_url), 3 * SCRIPT_ROWS
    writer, registration = registered(sink)
    assert registration == Registration(0, None)
    with closing(writer):
        assert writer.write(0, list(range(300))) == 300
        assert writer.write(290, list(range(290, 310))) == 310
    successor, registration = registered(sink, number=200, incarnation=2)
    assert registration == Registration(310, None)
    with closing(successor):
        assert successor.write(200, list(range(200, last))) == last
    assert numbers(server, "once") == list(range(last))
    assert found(server, "once")[7][1][b"clonos-id"] == b"job-1/out/0/0/7"


def test_an_earlier_incarnation_adds_nothing_after_a_later_one_has_registered(server: RedisProcess) -> None:
    sink = redis.sink("fenced", url=server.full_url)
    (earlier, _), (later, _) = registered(sink), registered(sink, incarnation=2)
    with closing(earlier), closing(later):
        later.write(0, [0])
        with pytest.raises(WriterFenced, match="incarnation 2 of generation 0 has registered") as fenced:
            earlier.write(0, [7, 8])
        assert fenced.value.by == (0, 2)
        with pytest.raises(WriterFenced):
            registered(sink)
    assert numbers(server, "fenced") == [0]


def test_a_new_generation_reports_which_rows_come_again_until_it_has_written_one(server: RedisProcess) -> None:
    sink = redis.sink("back", url=server.full_url)
    writer, _ = registered(sink)
    writer.write(0, [0, 1, 2, 3])
    writer.close()
    for incarnation in (2, 3):
        writer, registration = registered(sink, number=2, generation=1, incarnation=incarnation)
        assert registration == Registration(2, 4)
        if incarnation == 3:
            writer.write(2, [7])
        writer.close()
    writer, registration = registered(sink, number=2, generation=1, incarnation=4)
    writer.close()
    assert registration == Registration(3, None)
    assert [fields[b"clonos-id"][-3:] for _, fields in found(server, "back")] == [
        b"0/0",
        b"0/1",
        b"0/2",
        b"0/3",
        b"1/2",
    ]


def test_a_number_that_the_server_has_lost_ends_the_job(server: RedisProcess) -> None:
    sink = redis.sink("lost", url=server.full_url)
    writer, _ = registered(sink)
    writer.write(0, [0, 1])
    server.ask("HSET", HASH, "next", 1, "highest", 1)
    with (
        closing(writer),
        pytest.raises(NumberLost, match="at least 2 rows have been written: the server has restarted"),
    ):
        writer.write(2, [2])
    with pytest.raises(NumberLost, match="appendonly yes"):
        registered(sink, number=2, incarnation=2)
    server.ask("DEL", HASH)
    with pytest.raises(NumberLost):
        registered(sink, number=2, incarnation=2)
    assert numbers(server, "lost") == [0, 1]


def test_rows_go_to_their_streams_with_their_fields(server: RedisProcess) -> None:
    sink = redis.sink(
        lambda row: f"city:{row['city']}",
        url=server.full_url,
        encode=lambda row: row["city"].encode(),
        headers=lambda row: {"city": row["city"], "raw": b"\xff"},
    )
    sink.check_start()
    writer, _ = registered(sink)
    with closing(writer):
        writer.write(0, [{"city": city} for city in ("bonn", "kiel", "bonn")])
    assert [fields[b"clonos-id"][-1:] for _, fields in found(server, "city:bonn")] == [b"0", b"2"]
    [(_, kiel)] = found(server, "city:kiel")
    assert kiel == {b"clonos-id": b"job-1/out/0/0/1", b"city": b"kiel", b"raw": b"\xff", b"data": b"kiel"}


def test_a_stream_is_trimmed_to_about_as_many_entries_as_entries_max(server: RedisProcess) -> None:
    writer, _ = registered(redis.sink("trimmed", url=server.full_url, entries_max=100))
    with closing(writer):
        writer.write(0, list(range(2_000)))
    remaining = numbers(server, "trimmed")
    assert remaining[-1] == 1_999
    assert 100 <= len(remaining) < 400


def test_rows_before_a_refused_row_are_added_once(server: RedisProcess) -> None:
    server.ask("SET", "text", "a")
    sink = redis.sink(lambda row: row, url=server.full_url)
    writer, _ = registered(sink)
    with closing(writer), pytest.raises(SystemRefused, match="adding to the stream text: WRONGTYPE"):
        writer.write(0, ["a", "text", "b"])
    server.ask("DEL", "text")
    writer, registration = registered(sink, incarnation=2)
    assert registration.next_number == 1
    with closing(writer):
        assert writer.write(0, ["a", "text", "b"]) == 3
    assert [len(found(server, key)) for key in ("a", "text", "b")] == [1, 1, 1]


def test_a_server_without_memory_takes_the_rows_when_there_is_some(server: RedisProcess) -> None:
    hasty, _ = registered(redis.sink("full", url=server.full_url, timeout="10ms"))
    server.ask("CONFIG", "SET", "maxmemory", 1)
    with closing(hasty), pytest.raises(SystemUnreachable, match="memory"):
        hasty.write(0, [0])
    server.ask("CONFIG", "SET", "maxmemory", 0)
    patient, _ = registered(redis.sink("full", url=server.full_url), incarnation=2)
    with closing(patient):
        assert patient.write(0, [0]) == 1
    assert numbers(server, "full") == [0]


def test_a_user_who_may_not_write_is_refused(server: RedisProcess) -> None:
    sink = redis.sink("closed", url=f"redis://{READER}:{PASSWORD}@{server.place}")
    with pytest.raises(SystemRefused, match="this user has no permissions"):
        registered(sink)


def test_a_server_that_dies_is_a_fault_and_takes_the_rest_when_it_is_back(server: RedisProcess) -> None:
    patient, _ = registered(redis.sink("dies", url=server.full_url))
    patient.write(0, [0, 1])
    server.kill()
    with pytest.raises(SystemUnreachable):
        redis.sink("dies", url=server.full_url).check_start()
    server.launch()
    with closing(patient):
        assert patient.write(2, [2, 3]) == 4  # begun before the server answers
    server.wait()
    assert numbers(server, "dies") == [0, 1, 2, 3]


ROWS = st.binary(max_size=9) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROWS, max_size=9))
def test_a_row_comes_out_as_it_went_in_or_is_refused(server: RedisProcess, rows: list[Any]) -> None:
    server.ask("FLUSHALL")
    sink = redis.sink(add_stream(server, "values"), url=server.full_url)
    good = []
    for row in rows:
        with suppress(RowNotWritable):
            sink.check_row(row)
            good.append(row)
    writer, _ = registered(sink)
    with closing(writer):
        writer.write(0, good)
    source = redis.source("values", url=server.full_url, until="latest")
    data = [entry.fields["data"] for entry in read_raw(source, source.splits(1)[0])]
    assert [_value(datum, type(row)) for row, datum in zip(good, data, strict=True)] == good


def _value(datum: bytes, kind: type) -> Any:
    return datum if kind is bytes else datum.decode() if kind is str else codecs.json().decode(datum)


def test_a_row_of_the_most_fields_that_an_entry_may_have_is_added(server: RedisProcess) -> None:
    """A script that has too many fields for Lua ends after its first rows: they came again at each attempt."""
    most = {f"f{number}": "a" for number in range(FIELDS_MAX)}
    sink = redis.sink("wide", url=server.full_url, entries_max=10, headers=lambda row: most if row == 3 else {})
    with closing(registered(sink)[0]) as writer:
        assert writer.write(0, list(range(5))) == 5
    assert numbers(server, "wide") == list(range(5))
