"""Samples of the tests of ``postgres.table``: identities, a registered writer, and the rows that it has written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clonos.connectors import postgres as pg
from clonos.connectors.postgres.table import PostgresTable
from clonos.connectors.tables.table_writer import TableWriter
from clonos.operators.connector_contract import WriterIdentity
from tests.connectors.servers.postgres import PostgresServer

JOB = "orders-0123456789abcdef"
COLUMNS = {"word": "text", "seen": "int"}


def identity(incarnation: int, generation: int = 1, index: int = 0) -> WriterIdentity:
    return WriterIdentity(JOB, f"words/{index}", generation, incarnation)


@contextmanager
def registered(sink: PostgresTable, who: WriterIdentity, restored_number: int = 0) -> Iterator[TableWriter]:
    writer = sink.immediate_writer()
    try:
        writer.register(who, restored_number)
        yield writer
    finally:
        writer.close()


def words_in(server: PostgresServer) -> list[tuple[Any, ...]]:
    return server.run("SELECT word, seen FROM words ORDER BY clonos_task, clonos_number")


def sink_to(server: PostgresServer, **options: Any) -> PostgresTable:
    return pg.table(server.full_url, "words", COLUMNS, **options)
