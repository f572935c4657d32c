"""The server of the tests keeps what it has over a kill, and asks for its password."""

from __future__ import annotations

import psycopg
import pytest

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
