"""Messages on the wire: each is decoded as encoded, and other bytes are a malformed message of that peer."""

from __future__ import annotations

import pickle
import random
import re
from contextlib import suppress
from enum import Enum
from typing import Any, get_args

import msgpack
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clonos.core.model.errors import MessageMalformed
from clonos.core.model.ids import CheckpointId, Incarnation, TaskId
from clonos.core.wire import message_codec
from clonos.core.wire.messages import Message
from clonos.core.wire.replication_messages import StandbyUpdate
from tests.unit.coordinator.test_metadata import NAMES_ASTRAY

KINDS: tuple[type[Message], ...] = get_args(Message)


def example(kind: Any, rng: random.Random) -> Any:
    """A random value of a message's field, or a random message."""
    info = kind if isinstance(kind, msgspec.inspect.Type) else msgspec.inspect.type_info(kind)
    match info:
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            return cls(*(example(found.type, rng) for found in fields))
        case msgspec.inspect.IntType(ge=least):
            return rng.choice((least or 0, 1, 127, 128, 1 << 31, (1 << 62) - 1))
        case msgspec.inspect.StrType(pattern=str()):
            return rng.choice(("map/0", "snapshots/3/000000000002-100000001-delta"))
        case msgspec.inspect.StrType():
            return rng.choice(("", "map/0", "ä" * 20))
        case msgspec.inspect.BytesType():
            return rng.randbytes(rng.randrange(40))
        case msgspec.inspect.NoneType():
            return None
        case msgspec.inspect.EnumType(cls=cls):
            return rng.choice(list(cls))
        case msgspec.inspect.UnionType(types=types):
            return example(rng.choice(types), rng)
        case msgspec.inspect.FloatType():
            return rng.choice((0.0, -1.5, 2e9))
        case msgspec.inspect.BoolType():
            return rng.random() < 0.5
        case msgspec.inspect.VarTupleType(item_type=item, min_length=least):
            return tuple(example(item, rng) for _ in range(rng.randrange(least or 0, 4)))
        case msgspec.inspect.TupleType(item_types=items):
            return tuple(example(item, rng) for item in items)
    raise AssertionError(info)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a1_every_message_reads_back_as_it_was_written(kind: type[Message]) -> None:
    for seed in range(20):
        message = example(kind, random.Random(seed))
        assert message_codec.decode_message(message_codec.encode_message(message), "slot 1") == message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_another_library_reads_a_message_as_its_tag_and_its_fields_in_their_order(kind: type[Message]) -> None:
    message = example(kind, random.Random(1))
    found = msgpack.unpackb(message_codec.encode_message(message), use_list=False)
    assert found == (kind.__struct_config__.tag, *_plain(msgspec.structs.astuple(message)))


def _plain(fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """Structs within each other as tuples of their fields, enums as their values."""
    plain = (value.value if isinstance(value, Enum) else value for value in fields)
    values = (msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else value for value in plain)
    return tuple(_plain(value) if isinstance(value, tuple) else value for value in values)


def test_every_message_has_a_tag_and_documents_its_sender_and_receiver() -> None:
    for kind in KINDS:
        assert kind.__struct_config__.tag, kind
        assert kind.__struct_config__.frozen, kind
        assert " to " in (kind.__doc__ or "").split("\n")[0], kind
    assert len({kind.__struct_config__.tag for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_tag_of_a_message_is_its_class_in_snake_case(kind: type[Message]) -> None:
    assert kind.__struct_config__.tag == re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_decode_to_a_message_or_are_malformed(data: bytes) -> None:
    with suppress(MessageMalformed):
        message_codec.decode_message(data, "slot 7")


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 1 << 32))
def test_a_message_with_flipped_bytes_or_cut_short_is_a_message_or_malformed(kind: type[Message], seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(message_codec.encode_message(example(kind, rng)))
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    del data[rng.randrange(len(data) + 1) :]
    with suppress(MessageMalformed):
        assert isinstance(message_codec.decode_message(bytes(data), "slot 7"), KINDS)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(["batch"]),
        msgspec.msgpack.encode(["nothing", 1, 2]),
        msgspec.msgpack.encode(["release", 1, "x"]).replace(b"x", b"\xc3"),
        msgspec.msgpack.encode(["release", 1, 2]),
        msgspec.msgpack.encode(["release", 1, "x" * ((1 << 20) + 1)]),
        msgspec.msgpack.encode(["position", 0, 1, 1, -1, 0, 0, []]),
        msgspec.msgpack.encode(["position", 0, 1, 1, 1, 0, -5, []]),
        msgspec.msgpack.encode(["position", 0, 1, 1, 1, 0, 1 << 62, []]),
        msgspec.msgpack.encode(["batch", 0, 1, 1, 1, 0, 0, 5, 1, 0, []]),  # no kind of elements
        msgspec.msgpack.encode(["slot_status", 1, 1, 0, [[0, 1, "gathering", []]], [], []]),  # no phase of a task
        msgspec.msgpack.encode(["slot_status", 1, 1, 0, [[0, 1, "live", [["records", 1]]]], [], []]),  # no counter
        b"\x91" * 100_000,
    ],
)
def test_a_field_of_a_wrong_type_or_beyond_a_limit_is_malformed(data: bytes) -> None:
    with pytest.raises(MessageMalformed):
        message_codec.decode_message(data, "slot 7")


@pytest.mark.parametrize("name", NAMES_ASTRAY)
def test_an_object_name_outside_the_store_is_malformed(name: str) -> None:
    update = StandbyUpdate(TaskId(1), Incarnation(1), CheckpointId(1), None, ("snapshots/1/1-1-full", name))
    with pytest.raises(MessageMalformed, match="slot 7"):
        message_codec.decode_message(message_codec.encode_message(update), "slot 7")


def test_a_message_beyond_the_limit_is_malformed_before_it_is_decoded() -> None:
    with pytest.raises(MessageMalformed, match=f"the limit is {message_codec.MESSAGE_BYTES_MAX}"):
        message_codec.decode_message(memoryview(bytes(message_codec.MESSAGE_BYTES_MAX + 1)), "slot 7")


def test_a_codec_error_survives_pickling_from_an_executor() -> None:
    error = MessageMalformed("slot 7", "why")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301
