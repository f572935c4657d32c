"""``mqtt.sink`` on a real broker: ids, user properties, values, and what is refused."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clonos import codecs
from clonos.connectors import mqtt
from clonos.connectors.kit.external_system import MessageRefused, SystemRefused, SystemUnreachable
from clonos.operators.row_errors import RowNotWritable
from tests.connectors.mqtt.topics import observed
from tests.connectors.registered_writers import registered
from tests.connectors.servers.mosquitto import PASSWORD, READER, MosquittoServer

pytestmark = pytest.mark.connectors


def test_rows_that_are_published_again_have_the_same_id(mosquitto: MosquittoServer) -> None:
    sink = mqtt.sink("once", url=mosquitto.full_url)
    sink.check_start()
    with observed(mosquitto, "once") as seen:
        with closing(registered(sink)) as writer:
            assert writer.write(0, list(range(1_500))) == 1_500
        with closing(registered(sink, 1_400)) as successor:
            assert successor.write(1_400, list(range(1_400, 1_600))) == 1_600
        seen.wait(1_600)
    assert set(seen.messages) == {(f"job-1/out/0/0/{n}", b"%d" % n) for n in range(1_600)}


def test_rows_go_to_their_topics_with_their_properties(mosquitto: MosquittoServer) -> None:
    sink = mqtt.sink(
        lambda row: f"cities/{row['city']}",
        url=mosquitto.full_url,
        encode=lambda row: row["city"].encode(),
        headers=lambda row: {"city": row["city"]},
        retain=True,
    )
    with closing(registered(sink)) as writer:
        writer.write(0, [{"city": "bonn"}, {"city": "kiel"}])
    source = mqtt.source("cities/+", session="cities", url=mosquitto.full_url)
    with closing(source.connect(0)) as feed:
        data = b""
        while len(source.cut(data)) < 2:
            data += feed.receive(100) or b""
    messages = sorted(source.decode(source.cut(data)), key=lambda message: message.topic)
    assert [(message.topic, message.payload, message.retained) for message in messages] == [
        ("cities/bonn", b"bonn", True),
        ("cities/kiel", b"kiel", True),
    ]
    assert messages[0].properties == (("clonos-id", "job-1/out/0/0/0"), ("city", "bonn"))


def test_a_user_who_may_not_publish_is_refused(mosquitto: MosquittoServer) -> None:
    sink = mqtt.sink("closed", url=f"mqtt://{READER}:{PASSWORD}@{mosquitto.place}")
    with closing(registered(sink)) as writer, pytest.raises(SystemRefused, match="Not authorized"):
        writer.write(0, ["x"])


def test_a_row_that_is_too_large_is_an_error_of_the_job(mosquitto: MosquittoServer) -> None:
    sink, reason = mqtt.sink("small", url=mosquitto.full_url), "the broker takes packets of 1000000 bytes"
    with closing(registered(sink)) as writer, pytest.raises(MessageRefused, match=reason):
        writer.write(0, ["a", "b" * 2_000_000])


def test_a_broker_that_dies_is_a_fault_and_takes_the_rest_when_it_is_back(mosquitto: MosquittoServer) -> None:
    with closing(registered(mqtt.sink("dies", url=mosquitto.full_url))) as patient:
        patient.write(0, [0, 1])
        mosquitto.kill()
        with pytest.raises(SystemUnreachable):
            mqtt.sink("dies", url=mosquitto.full_url).check_start()
        mosquitto.launch()
        assert patient.write(2, [2, 3]) == 4  # begun before the broker answers
        mosquitto.wait()


ROWS = st.binary(max_size=9) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROWS, max_size=9), name=st.text(max_size=5), value=st.text(max_size=5))
def test_a_row_comes_out_as_it_went_in_or_is_refused(
    mosquitto: MosquittoServer, rows: list[Any], name: str, value: str
) -> None:
    sink = mqtt.sink("values", url=mosquitto.full_url, headers={name: value})
    good = []
    for row in rows:
        with suppress(RowNotWritable):
            sink.check_row(row)
            good.append(row)
    source = mqtt.source("values", session="values", url=mosquitto.full_url)
    with closing(source.connect(0)) as feed, closing(registered(sink)) as writer:
        writer.write(0, good)
        data = b""
        while len(source.cut(data)) < len(good):
            data += feed.receive(100) or b""
        feed.acknowledge(len(data))
    found = source.decode(source.cut(data))
    assert [_value(each.payload, type(row)) for row, each in zip(good, found, strict=True)] == good
    assert all(each.properties[1:] == ((name, value),) for each in found)


def _value(payload: bytes, kind: type) -> Any:
    return payload if kind is bytes else payload.decode() if kind is str else codecs.json().decode(payload)
