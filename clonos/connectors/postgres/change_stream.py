"""Stream of changes from a replication slot: one connection of psycopg in replication mode, and one open transaction.

A position is the end of the last whole transaction, and the number of changes that were taken since. Logical decoding
sends the transactions behind an LSN in the order of their commits, so the same position always has the same changes.
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from clonos.connectors.postgres import pgoutput as p
from clonos.connectors.postgres.server import Server
from clonos.core.values import register

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SILENCE_S, SILENCES_MAX = 2.0, 60
"""Time after which the server is asked whether it has more to send, and how often."""

OPTIONS: Final = "proto_version '1', publication_names '{}'"
Kind = Literal["insert", "update", "delete", "truncate"]


@register(name="clonos.postgres.Change")
class Change(msgspec.Struct, frozen=True):
    """Change of a row, or of a whole table by TRUNCATE.

    ``row`` is the row as it is now, a dict by column, or None if it is gone. ``old`` has what the server reports of the
    row before: with a deletion and with an update of the key the columns of the replica identity, else None. ``lsn``
    and ``committed`` are those of the transaction's commit, ``xid`` is its number.
    """

    kind: Kind
    table: str
    row: Any
    old: Any
    lsn: int
    xid: int
    committed: datetime


class Position(msgspec.Struct, frozen=True, array_like=True):
    """Position: ``taken`` changes behind the end of the transaction at ``lsn``."""

    lsn: int
    taken: int


class Tables:
    """Tables that a connection has described, and how their values are read."""

    def __init__(self, connection: Any, text_types: frozenset[int]) -> None:
        from psycopg.adapt import Transformer
        from psycopg.pq import Format

        self._relations: dict[int, p.Relation] = {}
        self._transformer, self._text = Transformer(connection), Format.TEXT
        self._text_types = text_types

    def add(self, relation: p.Relation) -> None:
        """Takes in the description of a table."""
        self._relations[relation.oid] = relation

    def name(self, oid: int) -> str:
        """Returns schema and table, with a dot between them."""
        relation = self._relation(oid)
        return f"{relation.schema}.{relation.name}"

    def row(self, oid: int, fields: p.Fields, only_key: bool = False) -> dict[str, Any]:
        """Returns the values by column, without those that the server has not sent.

        Raises: ReplicationMalformed: the table is unknown or has another number of columns.
        """
        columns = self._relation(oid).columns
        if len(columns) != len(fields):
            raise p.ReplicationMalformed(f"a row of {self.name(oid)} has {len(fields)} of {len(columns)} columns")
        return {
            column.name: self._value(column.type_oid, value)
            for column, value in zip(columns, fields, strict=True)
            if not isinstance(value, msgspec.UnsetType) and (column.is_key or not only_key)
        }

    def _relation(self, oid: int) -> p.Relation:
        try:
            return self._relations[oid]
        except KeyError:
            raise p.ReplicationMalformed(f"the table {oid} was not described") from None

    def _value(self, type_oid: int, text: str | None) -> Any:
        if text is None or type_oid in self._text_types:
            return text
        return self._transformer.get_loader(type_oid, self._text).load(text.encode())


class ChangeStream:
    """Open replication connection. ``position`` is behind the last change that ``take`` has returned."""

    def __init__(self, server: Server, slot: str, publication: str, position: Position, end_lsn: int) -> None:
        """Connects and starts the replication. ``end_lsn``: what was committed before has to come.

        Raises: psycopg.Error: the server does not start it. DatabaseUnreachable, DatabaseRefused.
        """
        self.position = position
        self._to_skip = position.taken
        self._server, self._sent_lsn, self._end_lsn = server, position.lsn, end_lsn
        self._transaction: p.Begin | None = None
        self._ready: deque[Change] = deque()
        self._connection = server.connect(autocommit=True, replication="database")
        try:
            self._connection.execute("SET wal_sender_timeout = 0")  # a job may be slowed down for hours
            self._tables = Tables(self._connection, text_types(self._connection))
            start = f"{position.lsn >> 32:X}/{position.lsn & 0xFFFFFFFF:X}"
            command = f'START_REPLICATION SLOT "{slot}" LOGICAL {start} ({OPTIONS.format(publication)})'
            self._start(command)
        except BaseException:
            self._connection.close()
            raise

    def take(self, changes_max: int, wait_s: float = 0.0) -> list[Change]:
        """Returns the changes that have arrived, at most ``changes_max``; waits up to ``wait_s`` for the first.

        Waits longer for what was committed before the stream was opened: a replay takes [] for a loss.

        Raises: psycopg.Error: the connection is lost. ReplicationMalformed.
        """
        found: list[Change] = []
        while len(found) < changes_max:
            if self._ready:
                found.append(self._ready.popleft())
                self.position = Position(self.position.lsn, self.position.taken + 1)
            elif (data := self._receive(0.0 if found else wait_s)) is None:
                if found or not self._must_have_more():
                    break
            else:
                self._take_in(p.decode_frame(data))
        return found

    def acknowledge(self, lsn: int) -> None:
        """Tells the server that it may drop everything before ``lsn``.

        Raises: psycopg.Error: the connection is lost.
        """
        raw = self._connection.pgconn
        raw.put_copy_data(p.encode_status(lsn, p.EPOCH_US))
        while raw.flush():
            select.select([], [raw.socket], [])

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def _start(self, command: str) -> None:
        import psycopg

        result = self._connection.pgconn.exec_(command.encode())
        if result.status != psycopg.pq.ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(result)

    def _receive(self, wait_s: float) -> bytes | None:
        """Returns the next frame, None if none arrives in time."""
        import psycopg

        raw = self._connection.pgconn
        for has_waited in (False, True):
            size, data = raw.get_copy_data(1)
            if size > 0:
                return bytes(data)
            if size < 0:
                raise psycopg.OperationalError("the server has ended the replication")
            if has_waited or not select.select([raw.socket], [], [], wait_s)[0]:
                return None
            raw.consume_input()
        return None

    def _must_have_more(self) -> bool:
        """Waits for something, if the server has not sent all that was committed before the stream was opened.

        Raises: psycopg.OperationalError: the server stays silent.
        """
        import psycopg

        raw, has_sent_all = self._connection.pgconn, False
        for _ in range(SILENCES_MAX):
            if self._sent_lsn >= self._end_lsn:
                return False
            if select.select([raw.socket], [], [], SILENCE_S)[0]:
                return True
            if has_sent_all:  # and nothing was on its way
                self._sent_lsn = self._end_lsn
                return False
            # The end of the log may lie behind that of the last record, where no message ever reaches.
            with self._server.connect(autocommit=True) as asking:
                find = "SELECT state FROM pg_stat_replication WHERE pid = %s"
                has_sent_all = asking.execute(find, [raw.backend_pid]).fetchone() == ("streaming",)
        raise psycopg.OperationalError(f"the server has sent nothing for {SILENCES_MAX * SILENCE_S:.0f} s")

    def _take_in(self, frame: p.Frame) -> None:
        if isinstance(frame, p.Keepalive):
            self._sent_lsn = max(self._sent_lsn, frame.end_lsn)
            if self._transaction is None and frame.end_lsn > self.position.lsn:
                self.position = Position(frame.end_lsn, 0)
            return
        match message := p.decode(frame.payload):
            case p.Begin():
                self._transaction = message
            case p.Commit():
                self._transaction, self._to_skip = None, 0
                self.position = Position(message.end_lsn, 0)
            case p.Relation():
                self._tables.add(message)
            case p.Insert() | p.Update() | p.Delete() | p.Truncate():
                for change in self._of(message):
                    if self._to_skip:
                        self._to_skip -= 1
                    else:
                        self._ready.append(change)
            case p.Other():
                pass

    def _of(self, message: p.Insert | p.Update | p.Delete | p.Truncate) -> Iterator[Change]:
        begin, tables = self._transaction, self._tables
        if begin is None:
            raise p.ReplicationMalformed("a change is in no transaction")
        of_commit = begin.lsn, begin.xid, EPOCH + timedelta(microseconds=begin.committed_us)
        if isinstance(message, p.Truncate):
            for oid in message.relations:
                yield Change("truncate", tables.name(oid), None, None, *of_commit)
            return
        name = tables.name(message.relation)
        if isinstance(message, p.Insert):
            yield Change("insert", name, tables.row(message.relation, message.new), None, *of_commit)
        elif isinstance(message, p.Delete):
            old = tables.row(message.relation, message.old, message.old_is_key)
            yield Change("delete", name, None, old, *of_commit)
        else:
            before = None
            if message.old is not None:
                before = tables.row(message.relation, message.old, message.old_is_key)
            row = {**(before or {}), **tables.row(message.relation, message.new)}
            yield Change("update", name, row, before, *of_commit)


def text_types(connection: Any) -> frozenset[int]:
    """Returns the types whose Python objects streams cannot carry: their values stay text."""
    from psycopg.types.multirange import MultirangeInfo
    from psycopg.types.range import RangeInfo

    types = connection.adapters.types
    ranges = {info.oid for info in types if isinstance(info, (RangeInfo, MultirangeInfo))}
    return frozenset(ranges | {types[name].oid for name in ("inet", "cidr", "macaddr", "macaddr8")})
