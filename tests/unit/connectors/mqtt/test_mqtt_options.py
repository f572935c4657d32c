"""Options of ``mqtt.source`` and ``mqtt.sink``; no broker is asked."""

from __future__ import annotations

from typing import Any

import pytest

from clonos.connectors import mqtt, secrets
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.external_system import SystemUnreachable
from clonos.operators.connector_contract import WriterIdentity
from clonos.operators.row_errors import RowNotWritable

URL = "mqtt://shop:s3cret@localhost:1883"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"topics": ""}, "the topics are ''"),
        ({"topics": []}, "the topics are \\[\\]"),
        ({"topics": ["a", "a"]}, "the topics are \\['a', 'a'\\]"),
        ({"session": ""}, "the session is ''"),
        ({"acknowledge": "never"}, "acknowledge is 'never'"),
        ({"acknowledge": "checkpoint", "identity": None}, "does not go with identity=None"),
        ({"prefetch": 70_000}, "prefetch is 70000"),
        ({"remember": 0}, "remember is 0"),
        ({"expires_after": "1ms"}, "expires_after is '1ms'"),
        ({"url": "http://localhost"}, "url is no URL of MQTT"),
        ({"ca": "ca.pem"}, "ca= is given, but the url is not for TLS"),
    ],
)
def test_an_option_of_a_source_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        mqtt.source(**{"topics": "orders/#", "session": "s", "url": URL, **options})


@pytest.mark.parametrize("topic", ["a/#/b", "a#", "a/b#", "a+/b", "a/+b", "##", "$share/jobs+/a", "$share/a/b#"])
def test_a_wildcard_that_is_not_a_whole_level_is_refused(topic: str) -> None:
    with pytest.raises(InvalidConnector, match=r"the topic is .* A [+] stands for one whole level"):
        mqtt.source(["orders", topic], session="s", url=URL)


@pytest.mark.parametrize(
    "topic", ["#", "+", "a/#", "+/b/+", "/a", "a//b", "a/", "$SYS/#", "$share/jobs/a/#", "$share/j/#"]
)
def test_topics_with_wildcards_for_whole_levels_are_taken(topic: str) -> None:
    mqtt.source(topic, session="s", url=URL)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/#", "a/b"),
        ("a/#", "a"),
        ("+/b", "a/+"),
        ("#", "+"),
        ("a/+/c", "a/b/c"),
        ("$share/j/a", "a"),
        ("a/b/#", "a/+"),
    ],
)
def test_topics_that_overlap_are_refused_because_their_messages_would_come_twice(one: str, other: str) -> None:
    for topics in ([one, other], ["x", other, one]):
        with pytest.raises(InvalidConnector, match=r"overlap\. A broker sends a message once for each"):
            mqtt.source(topics, session="s", url=URL)


@pytest.mark.parametrize(
    ("one", "other"), [("a/b", "a/c"), ("a/+", "a/b/c"), ("a/+/c", "a/b/d"), ("a", "a/b"), ("a/+", "a"), ("a/b", "+")]
)
def test_topics_without_a_message_in_common_are_taken(one: str, other: str) -> None:
    mqtt.source([one, other], session="s", url=URL)


@pytest.mark.parametrize("topic", ["", "a/+", "a/#", "a\0", 7])
def test_a_sink_needs_a_topic_without_wildcards(topic: Any) -> None:
    with pytest.raises(InvalidConnector, match="the topic is"):
        mqtt.sink(topic, url=URL)


def test_no_text_shows_the_password_of_a_url() -> None:
    source, sink = mqtt.source("orders", session="s", url=URL), mqtt.sink("totals", url=URL)
    shown = repr(source) + repr(sink) + str(sink.describe_output())
    assert "s3cret" not in shown
    assert "mqtt://localhost:1883" in shown
    assert "MQTT_URL" in repr(mqtt.source("orders", session="s", url=secrets.env("MQTT_URL")))


@pytest.mark.parametrize("url", ["mqtt://a:s3cret@h:port", "mqtt://:s3cret@h/topic", "mqtt://:s3cret@h?a=b", "mqtt://"])
def test_a_url_that_cannot_be_parsed_is_not_shown(url: str) -> None:
    with pytest.raises(InvalidConnector, match="the url cannot be parsed") as refused:
        mqtt.sink("orders", url=url).check_start()
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": lambda row: row["to"]}, "its topic: 'a/#' is not a topic"),
        ({"topic": lambda row: row["from"]}, "its topic: 'from'"),
        ({"topic": lambda _: "\ud800"}, "its topic: .*surrogates"),
        ({"headers": lambda row: {"h": 7}}, "its headers: 'h': 7 cannot be a user property"),
        ({"headers": {"clonos-id": "a"}}, "its headers: 'clonos-id': 'a' cannot be"),
        ({"headers": {"h": "a\n"}}, "cannot be a user property"),
        ({"headers": {"h": "\ufffe"}}, "cannot be a user property"),
        ({"headers": {"h": "a" * 70_000}}, "its headers: 'h': 'a"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(RowNotWritable, match=reason):
        mqtt.sink(**{"topic": "totals", "url": URL, **options}).check_row({"n": 1, "to": "a/#"})


def test_a_broker_that_does_not_run_is_named() -> None:
    with pytest.raises(SystemUnreachable, match=r"MQTT at mqtt://127\.0\.0\.1:9 failed at connecting"):
        mqtt.source("orders", session="s", url="mqtt://127.0.0.1:9").connect(0)
    writer = mqtt.sink("totals", url="mqtt://127.0.0.1:9", timeout="1ms").immediate_writer()
    with pytest.raises(SystemUnreachable):
        writer.register(WriterIdentity("job-1", "out/0", 0, 0), 0)
