"""The short name of the NATS server in its own tests."""

from __future__ import annotations

import pytest

from tests.connectors.servers.nats import NatsServer


@pytest.fixture
def server(nats_server: NatsServer) -> NatsServer:
    """The server that all tests share."""
    return nats_server
