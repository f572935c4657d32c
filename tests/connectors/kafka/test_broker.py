"""The broker of the tests keeps what it has over a kill."""

from __future__ import annotations

import pytest

from tests.connectors.servers.kafka import KafkaServer

pytestmark = pytest.mark.connectors


def test_a_killed_and_restarted_broker_keeps_its_address_and_its_topics(broker: KafkaServer) -> None:
    name, address = broker.create_topic("kept", 2), broker.servers
    broker.kill()
    broker.start()
    assert broker.servers == address
    assert len(broker.admin().list_topics(name, timeout=10).topics[name].partitions) == 2
