"""The decoder of logical replication: each message as the protocol has it, and the declared error for other bytes."""

from __future__ import annotations

import struct
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.connectors.postgres import Change
from clonos.connectors.postgres import pgoutput as p
from clonos.connectors.postgres.pgoutput import ReplicationMalformed, decode, decode_frame
from clonos.core.values import decode_value, encode_value

NEW = b"N" + struct.pack(">H", 3) + b"t" + struct.pack(">I", 3) + "7ä".encode() + b"n" + b"u"
KEY = struct.pack(">H", 3) + b"t" + struct.pack(">I", 1) + b"7" + b"n" + b"n"
FIELDS, KEY_FIELDS = ("7ä", None, p.UNCHANGED), ("7", None, None)
OID = struct.pack(">I", 16_390)
RELATION = (
    b"R" + OID + b"public\0orders\0d" + struct.pack(">H", 2) + b"\1id\0" + struct.pack(">Ii", 23, -1)
    + b"\0item\0" + struct.pack(">Ii", 25, -1)
)  # fmt: skip

MESSAGES = {
    b"B" + struct.pack(">QqI", 7, 5, 731): p.TransactionBegin(7, 5 + p.EPOCH_US, 731),
    b"C\0" + struct.pack(">QQq", 7, 9, 5): p.TransactionCommit(7, 9),
    RELATION: p.Relation(
        16_390, "public", "orders", (p.RelationColumn("id", 23, True), p.RelationColumn("item", 25, False))
    ),
    b"I" + OID + NEW: p.Insert(16_390, FIELDS),
    b"U" + OID + NEW: p.Update(16_390, None, False, FIELDS),
    b"U" + OID + b"K" + KEY + NEW: p.Update(16_390, KEY_FIELDS, True, FIELDS),
    b"U" + OID + b"O" + KEY + NEW: p.Update(16_390, KEY_FIELDS, False, FIELDS),
    b"D" + OID + b"K" + KEY: p.Delete(16_390, KEY_FIELDS, True),
    b"D" + OID + b"O" + KEY: p.Delete(16_390, KEY_FIELDS, False),
    b"T" + struct.pack(">IB", 1, 0) + OID: p.Truncate((16_390,)),
    b"O" + struct.pack(">Q", 1) + b"elsewhere\0": p.Other("O"),
    b"Y" + OID + b"public\0mood\0": p.Other("Y"),
}


@pytest.mark.parametrize("data", MESSAGES, ids=lambda data: data[:6].hex() + str(len(data)))
def test_a_message_is_decoded_whole_and_never_in_part(data: bytes) -> None:
    assert decode(data) == MESSAGES[data]
    if data[:1] not in b"OY":
        for cut in range(len(data)):
            with pytest.raises(ReplicationMalformed):
                decode(data[:cut])
        with pytest.raises(ReplicationMalformed):
            decode(data + b"\0")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes"),
        (b"Z", "no message begins with 'Z'"),
        (b"I" + OID + b"X" + KEY, "'X' is none of N"),
        (b"I" + OID + b"N" + struct.pack(">H", 1_601), "a row has 1601 columns"),
        (b"I" + OID + b"N" + struct.pack(">H", 1) + b"t\xff\xff\xff\xff7", "a value of 4294967295 bytes is cut off"),
        (b"I" + OID + b"N" + struct.pack(">H", 1) + b"t\0\0\0\1\xff", "can't decode byte 0xff"),
        (b"T\xff\xff\xff\xff\0" + OID, "a truncation of 4294967295 tables"),
        (b"R" + OID + b"public", "a text has no end"),
    ],
)
def test_bytes_that_are_no_message_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ReplicationMalformed, match=reason):
        decode(data)


def test_frames_carry_messages_or_the_position_of_the_server() -> None:
    assert decode_frame(b"w" + struct.pack(">QQq", 1, 2, 3) + b"B") == p.Data(b"B")
    assert decode_frame(b"k" + struct.pack(">Qq?", 8, 3, True)) == p.Keepalive(8, True)
    for data in (b"", b"w", b"x" * 40, b"k" + bytes(16), b"k" + bytes(18)):
        with pytest.raises(ReplicationMalformed, match="a frame begins with"):
            decode_frame(data)


def test_a_status_has_one_position_three_times() -> None:
    assert p.encode_status(258, p.EPOCH_US + 3) == b"r" + 3 * struct.pack(">Q", 258) + struct.pack(">qB", 3, 0)


@given(st.one_of(st.binary(), st.sampled_from(list(MESSAGES)).flatmap(lambda data: st.binary().map(data.__add__))))
def test_any_bytes_are_a_message_or_the_declared_error(data: bytes) -> None:
    for function in (decode, decode_frame):
        with suppress(ReplicationMalformed):
            function(data)


def test_a_change_travels_between_tasks_as_it_is() -> None:
    row = {"id": 1, "price": Decimal("1.50"), "at": datetime(2026, 1, 2, tzinfo=UTC), "tags": ["a", None]}
    change = Change("update", "public.orders", row, {"id": 0}, 1 << 40, 731, datetime(2026, 1, 2, 3, tzinfo=UTC))
    assert decode_value(encode_value(change)) == change
