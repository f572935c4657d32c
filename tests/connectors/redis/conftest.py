"""The short name of the Redis server in its own tests."""

from __future__ import annotations

import pytest

from tests.connectors.servers.redis import RedisProcess


@pytest.fixture
def server(redis_server: RedisProcess) -> RedisProcess:
    """The server that all tests share."""
    return redis_server
