"""``mqtt.source`` on a real broker: acknowledgements, sessions, retained messages, shares, and what is refused."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Any

import pytest

from clonos.connectors import mqtt
from clonos.connectors.kit.external_system import PayloadMalformed, SystemRefused, SystemUnreachable
from clonos.operators.connector_contract import MalformedRecord, PushSource
from tests.connectors.mqtt.topics import publish
from tests.connectors.servers.mosquitto import PASSWORD, MosquittoServer

pytestmark = pytest.mark.connectors

TURNS = 300


def read(source: Any, feed: Any, count: int) -> bytes:
    """The journalled form of that many messages."""
    data = b""
    for _ in range(TURNS):
        if len(source.cut(data)) >= count:
            break
        data += feed.receive(100)
    assert len(source.cut(data)) == count
    return data


def test_messages_arrive_in_order_with_their_properties(mosquitto: MosquittoServer) -> None:
    source = mqtt.source(["whole/+", "other"], session="whole", url=mosquitto.full_url)
    assert isinstance(source, PushSource)
    with closing(source.connect(0)) as feed:
        publish(mosquitto, "whole/a", [b"\xff", "1"])
        records = source.cut(read(source, feed, 2))
    one, two = source.decode(records)
    assert (one.topic, one.payload, one.qos, one.retained) == ("whole/a", b"\xff", 1, False)
    assert one.properties == (("clonos-id", "whole/a/0"),)
    assert two.payload == b"1"
    assert source.identity(records[0]) not in (None, source.identity(records[1]))


def test_messages_that_were_not_acknowledged_come_again(mosquitto: MosquittoServer) -> None:
    source = mqtt.source("again", session="again", url=mosquitto.full_url)
    with closing(source.connect(0)) as feed:
        publish(mosquitto, "again", range(5))
        data = read(source, feed, 5)
        feed.acknowledge(len(b"".join(source.cut(data)[:3])))
    publish(mosquitto, "again", [5], first=5)
    with closing(source.connect(len(data))) as feed:
        messages = source.decode(source.cut(read(source, feed, 3)))
    assert [message.payload for message in messages] == [b"3", b"4", b"5"]
    assert [message.redelivered for message in messages] == [True, True, False]


def test_messages_that_wait_for_checkpoints_come_again_if_no_checkpoint_has_them(mosquitto: MosquittoServer) -> None:
    source: Any = mqtt.source("waits", session="waits", url=mosquitto.full_url, acknowledge="checkpoint")
    with closing(source.connect(0)) as feed:
        publish(mosquitto, "waits", range(3))
        data = read(source, feed, 3)
        feed.acknowledge(len(data))
        source.acknowledge(b"", b"%d" % len(source.cut(data)[0]))
    with closing(source.connect(len(data))) as feed:
        assert [each.payload for each in source.decode(source.cut(read(source, feed, 2)))] == [b"1", b"2"]


@pytest.mark.parametrize("retained", [True, False])
def test_the_retained_message_comes_once_when_the_session_begins(mosquitto: MosquittoServer, retained: bool) -> None:
    topic = f"retained/{retained}"
    publish(mosquitto, topic, ["old"], retain=True)
    source = mqtt.source(topic, session=topic, url=mosquitto.full_url, retained=retained)
    with closing(source.connect(0)) as feed:
        publish(mosquitto, topic, ["new"], first=1)
        data = read(source, feed, 1 + retained)
        feed.acknowledge(len(data))
    messages = source.decode(source.cut(data))
    assert [(message.payload, message.retained) for message in messages] == [(b"old", True), (b"new", False)][
        not retained :
    ]
    with closing(source.connect(len(data))) as feed:
        publish(mosquitto, topic, ["newest"], first=2)
        assert [each.payload for each in source.decode(source.cut(read(source, feed, 1)))] == [b"newest"]


def test_a_share_gives_each_message_to_one_of_its_sessions(mosquitto: MosquittoServer) -> None:
    sources = [mqtt.source("$share/g/shared", session=f"share {n}", url=mosquitto.full_url) for n in range(2)]
    feeds = [source.connect(0) for source in sources]
    publish(mosquitto, "shared", range(10))
    data = [b"", b""]
    for _ in range(TURNS):
        data = [got + (feed.receive(10) or b"") for got, feed in zip(data, feeds, strict=True)]
        if sum(len(source.cut(got)) for source, got in zip(sources, data, strict=True)) >= 10:
            break
    for feed in feeds:
        feed.close()
    payloads = [
        each.payload for source, got in zip(sources, data, strict=True) for each in source.decode(source.cut(got))
    ]
    assert sorted(payloads) == [b"%d" % n for n in range(10)]


def test_a_forgotten_session_is_warned_about(mosquitto: MosquittoServer, caplog: pytest.LogCaptureFixture) -> None:
    source = mqtt.source("forgotten", session="forgotten", url=mosquitto.full_url)
    with caplog.at_level(logging.WARNING, logger="clonos.slot"):
        source.connect(0).close()
        source.connect(10).close()
        assert caplog.text == ""
        mosquitto.kill()
        mosquitto.start()
        source.connect(10).close()
    assert "the broker has forgotten the session forgotten" in caplog.text


def test_a_payload_that_does_not_decode_is_set_aside_with_its_topic(mosquitto: MosquittoServer) -> None:
    source = mqtt.source("poison", session="poison", url=mosquitto.full_url, decode=int)
    with closing(source.connect(0)) as feed:
        publish(mosquitto, "poison", ["1", "x"])
        one, bad = source.decode(source.cut(read(source, feed, 2)))
    assert one == 1
    assert isinstance(bad, MalformedRecord)
    assert isinstance(bad.error, PayloadMalformed)
    assert "a message of the topic poison" in str(bad.error)


def test_a_second_reader_of_a_session_ends_the_first(mosquitto: MosquittoServer) -> None:
    source = mqtt.source("mine", session="mine", url=mosquitto.full_url)
    with (
        closing(source.connect(0)) as first,
        closing(source.connect(0)),
        pytest.raises(SystemUnreachable, match="failed at reading mine"),
    ):
        read(source, first, 1)


def test_a_wrong_password_is_an_error_of_the_job(mosquitto: MosquittoServer) -> None:
    url = f"mqtt://shop:wr0ng-7731@{mosquitto.place}"
    with pytest.raises(SystemRefused, match="Not authorized") as refused:
        mqtt.source("any", session="any", url=url).connect(0)
    assert "wr0ng" not in str(refused.value)
    assert PASSWORD not in str(refused.value)
