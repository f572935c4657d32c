"""Decoder of PostgreSQL's logical replication: the frames of the stream, and the messages of ``pgoutput`` in them.

Pure: bytes in, messages out, of protocol version 1. All values of rows are text, as the server writes it.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from clonos.core.model.errors import PeerError

EPOCH_US: Final = 946_684_800_000_000
"""PostgreSQL's zero of time, 2000-01-01, in microseconds since the Unix epoch."""

COLUMNS_MAX: Final = 1_600
"""Most columns of a table in PostgreSQL."""

UNCHANGED: Final = msgspec.UNSET
"""Value of a large column that an update has left alone, which the server does not send."""

Field = str | msgspec.UnsetType | None
Fields = tuple[Field, ...]

_FRAME: Final = struct.Struct(">QQq")
_KEEPALIVE: Final = struct.Struct(">Qq?")
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_STATUS: Final = struct.Struct(">cQQQqB")


class ReplicationMalformed(PeerError):
    """Bytes of a replication stream are no message of its protocol."""

    reason: str

    def __str__(self) -> str:
        return f"the replication stream of PostgreSQL is malformed: {self.reason}. The connection is opened anew."


class Data(msgspec.Struct, frozen=True):
    """Frame with a message of the plugin."""

    payload: bytes


class Keepalive(msgspec.Struct, frozen=True):
    """Frame that says up to where the server has sent everything, and whether it wants an answer."""

    end_lsn: int
    wants_reply: bool


class TransactionBegin(msgspec.Struct, frozen=True):
    """Start of a transaction."""

    lsn: int
    committed_us: int
    xid: int


class TransactionCommit(msgspec.Struct, frozen=True):
    """End of a transaction. A stream that starts at ``end_lsn`` begins with the transaction after it."""

    lsn: int
    end_lsn: int


class RelationColumn(msgspec.Struct, frozen=True):
    """Column of a relation. ``is_key``: a part of its replica identity."""

    name: str
    type_oid: int
    is_key: bool


class Relation(msgspec.Struct, frozen=True):
    """Table, described before its first change on a connection and after each change of its columns."""

    oid: int
    schema: str
    name: str
    columns: tuple[RelationColumn, ...]


class Insert(msgspec.Struct, frozen=True):
    """New row."""

    relation: int
    new: Fields


class Update(msgspec.Struct, frozen=True):
    """Changed row. ``old`` None: its key has not changed. ``old_is_key``: ``old`` has the key columns only."""

    relation: int
    old: Fields | None
    old_is_key: bool
    new: Fields


class Delete(msgspec.Struct, frozen=True):
    """Deleted row. ``old_is_key``: ``old`` has the key columns only."""

    relation: int
    old: Fields
    old_is_key: bool


class Truncate(msgspec.Struct, frozen=True):
    """Tables that were emptied."""

    relations: tuple[int, ...]


class Other(msgspec.Struct, frozen=True):
    """Message without a change: the origin of a transaction, a type, or a message of an application."""

    kind: str


Frame = Data | Keepalive
Message = TransactionBegin | TransactionCommit | Relation | Insert | Update | Delete | Truncate | Other


def decode_frame(data: bytes) -> Frame:
    """Decodes a frame.

    Raises: ReplicationMalformed: it is none.
    """
    kind, body = data[:1], data[1:]
    if kind == b"w" and len(body) > _FRAME.size:
        return Data(body[_FRAME.size :])
    if kind == b"k" and len(body) == _KEEPALIVE.size:
        end_lsn, _, wants_reply = _KEEPALIVE.unpack(body)
        return Keepalive(end_lsn, wants_reply)
    raise ReplicationMalformed(f"a frame begins with {data[:9]!r} and has {len(data)} bytes")


def encode_status(lsn: int, now_us: int) -> bytes:
    """Encodes the answer that everything before ``lsn`` may be dropped. ``now_us``: time since the Unix epoch."""
    return _STATUS.pack(b"r", lsn, lsn, lsn, now_us - EPOCH_US, 0)


def decode(payload: bytes) -> Message:
    """Decodes a message of the plugin.

    Raises: ReplicationMalformed: it is none.
    """
    try:
        return _Reader(payload).message()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ReplicationMalformed(f"{payload[:40]!r} of {len(payload)} bytes: {error}") from None


class _Reader:
    """Reader of one message."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def message(self) -> Message:
        kind = chr(self._data[0])
        self._at = 1
        found: Message
        match kind:
            case "B":
                lsn, at_us, xid = self._take(_BEGIN)
                found = TransactionBegin(lsn, at_us + EPOCH_US, xid)
            case "C":
                _, lsn, end_lsn, _ = self._take(_COMMIT)
                found = TransactionCommit(lsn, end_lsn)
            case "R":
                found = self._relation()
            case "I":
                oid = self._number(4)
                self._require("N")
                found = Insert(oid, self._fields())
            case "U":
                found = self._update()
            case "D":
                oid, part = self._number(4), self._letter("KO")
                found = Delete(oid, self._fields(), part == "K")
            case "T":
                count, _ = self._number(4), self._number(1)
                if count * 4 != len(self._data) - self._at:
                    raise ReplicationMalformed(f"a truncation of {count} tables has {len(self._data)} bytes")
                found = Truncate(tuple(self._number(4) for _ in range(count)))
            case "O" | "Y" | "M":
                return Other(kind)
            case _:
                raise ReplicationMalformed(f"no message begins with {kind!r}")
        if self._at != len(self._data):
            raise ReplicationMalformed(f"{len(self._data) - self._at} bytes follow a message of kind {kind}")
        return found

    def _relation(self) -> Relation:
        oid, schema, name = self._number(4), self._text(), self._text()
        self._number(1)
        columns = []
        for _ in range(self._count()):
            is_key, column = self._number(1), self._text()
            columns.append(RelationColumn(column, self._number(4), bool(is_key & 1)))
            self._number(4)
        return Relation(oid, schema or "pg_catalog", name, tuple(columns))

    def _update(self) -> Update:
        oid, part = self._number(4), self._letter("KON")
        old = None
        if part != "N":
            old = self._fields()
            self._require("N")
        return Update(oid, old, part == "K", self._fields())

    def _fields(self) -> Fields:
        found: list[Field] = []
        for _ in range(self._count()):
            match self._letter("nut"):
                case "n":
                    found.append(None)
                case "u":
                    found.append(UNCHANGED)
                case _:
                    length = self._number(4)
                    if length > len(self._data) - self._at:
                        raise ReplicationMalformed(f"a value of {length} bytes is cut off")
                    found.append(self._data[self._at : self._at + length].decode())
                    self._at += length
        return tuple(found)

    def _count(self) -> int:
        count = self._number(2)
        if count > COLUMNS_MAX:
            raise ReplicationMalformed(f"a row has {count} columns")
        return count

    def _take(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def _number(self, size: int) -> int:
        if self._at + size > len(self._data):
            raise ReplicationMalformed("the message is cut off")
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "big")

    def _text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ReplicationMalformed("a text has no end")
        text = self._data[self._at : end].decode()
        self._at = end + 1
        return text

    def _letter(self, allowed: str) -> str:
        letter = chr(self._number(1))
        if letter not in allowed:
            raise ReplicationMalformed(f"{letter!r} is none of {', '.join(allowed)}")
        return letter

    def _require(self, letter: str) -> None:
        self._letter(letter)
