"""Options of ``rabbitmq.queue`` and ``rabbitmq.exchange``, and the journalled form of messages; no broker is asked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors import rabbitmq
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.journal_records import cut_records, identity_in
from clonos.connectors.rabbitmq.message import Message, journalled, message_in
from clonos.operators.split_source import AcknowledgedSource

URL = "amqp://shop:s3cret@localhost/%2F"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"prefetch": 0}, "prefetch is 0"),
        ({"prefetch": 65_536}, "prefetch is 65536"),
        ({"remember": 0}, "remember is 0"),
        ({"until": "latest"}, "until is 'latest'"),
        ({"acknowledge": "never"}, "acknowledge is 'never'"),
        ({"acknowledge": "checkpoint", "until": "empty"}, "does not go with until='empty'"),
        ({"acknowledge": "checkpoint", "identity": None}, "does not go with identity=None"),
        ({"url": "http://localhost"}, "url is no URL of RabbitMQ"),
    ],
)
def test_an_option_of_a_queue_that_cannot_work_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidConnector, match=problem):
        rabbitmq.queue("orders", **{"url": URL, **options})


def test_an_exchange_needs_a_name_or_a_routing_key() -> None:
    with pytest.raises(InvalidConnector, match="the default exchange without a routing_key"):
        rabbitmq.exchange("", url=URL)


@pytest.mark.parametrize("option", ["persistent", "mandatory"])
def test_a_switch_of_an_exchange_is_true_or_false(option: str) -> None:
    options: dict[str, Any] = {option: "no"}
    with pytest.raises(InvalidConnector, match=f"{option} is 'no'. Give True or False"):
        rabbitmq.exchange("shop", url=URL, **options)


@pytest.mark.parametrize("option", ["heartbeet=3", "heartbeat=s3cret"])
def test_an_option_of_the_url_that_pika_does_not_take_is_named(option: str) -> None:
    name = option.partition("=")[0]
    with pytest.raises(InvalidConnector, match=f"pika does not take the option '{name}' of the url") as caught:
        rabbitmq.exchange("shop", url=f"{URL}?{option}").check_start()
    assert "s3cret" not in str(caught.value)


def test_no_text_shows_the_password_of_a_url() -> None:
    sink = rabbitmq.exchange("shop", url=URL)
    shown = repr(rabbitmq.queue("orders", url=URL)) + repr(sink) + str(sink.describe_output())
    assert "s3cret" not in shown
    assert "amqp://localhost/%2F" in shown


def test_only_a_queue_that_waits_for_checkpoints_takes_acknowledgements_from_them() -> None:
    assert not isinstance(rabbitmq.queue("orders", url=URL), AcknowledgedSource)
    waiting = rabbitmq.queue("orders", url=URL, acknowledge="checkpoint")
    assert isinstance(waiting, AcknowledgedSource)
    waiting.acknowledge(b"", b"10")  # without a connection in this process
    assert waiting.identities_retained == 40_000


@given(st.lists(st.tuples(st.binary(max_size=20), st.none() | st.text(max_size=5)), max_size=8))
def test_messages_cut_from_a_journal_are_those_that_went_in(given_messages: list[tuple[bytes, str | None]]) -> None:
    messages = [
        (Message(body, "key", "exchange", False, headers={"n": 1, "x": [b"\xff", None]}), name)
        for body, name in given_messages
    ]
    records = [journalled(message, name) for message, name in messages]
    assert not any(record.endswith(b"\x04") for record in records)
    assert cut_records(b"".join(records)) == records
    assert [message_in(record) for record in records] == [message for message, _ in messages]
    for record, (_, name) in zip(records, messages, strict=True):
        assert (identity_in(record) is None) == (name is None)
