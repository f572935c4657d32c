"""The server of the tests keeps what it has over a kill, and asks for its password."""

from __future__ import annotations

import os
import socket

import psycopg
import pytest

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.postgres.postgres_address import PostgresAddress
from tests.connectors.servers.postgres import PostgresServer

pytestmark = pytest.mark.connectors


def test_a_killed_and_restarted_server_keeps_its_address_and_its_rows(postgres: PostgresServer) -> None:
    postgres.run("CREATE TABLE kept (n int)")
    postgres.run("INSERT INTO kept VALUES (7)")
    url = postgres.url
    postgres.kill()
    with pytest.raises(psycopg.OperationalError):
        postgres.connect()
    postgres.start()
    assert postgres.url == url
    assert postgres.run("SELECT n FROM kept") == [(7,)]


def test_a_connection_without_the_password_is_refused(postgres: PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(postgres.url)


def test_a_connection_ends_within_a_minute_after_its_server_has_vanished(postgres: PostgresServer) -> None:
    idle, interval, count = socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT
    with (
        PostgresAddress("test", postgres.full_url, None).connect() as connection,
        socket.socket(fileno=os.dup(connection.fileno())) as copied,
    ):
        option = {each: copied.getsockopt(socket.IPPROTO_TCP, each) for each in (idle, interval, count)}
        unconfirmed_ms = copied.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert option[idle] + option[interval] * option[count] <= 60
    assert 0 < unconfirmed_ms <= 60_000


@pytest.mark.parametrize("dsn", ["postgresql://ann:s3cret@h/shop?sslmod=x", "host=h password=s3cret sslmod=x"])
def test_an_option_of_a_dsn_that_libpq_does_not_know_is_named(dsn: str) -> None:
    with pytest.raises(InvalidConnector, match=r"libpq has no option 'sslmod'\. Correct its name") as caught:
        PostgresAddress("postgres.table", dsn, None).connect()
    assert "s3cret" not in str(caught.value)
