"""The choice of a codec by type, and by what decode= and encode= are given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypedDict

import pyarrow
import pytest

from clonos import codecs
from clonos.connectors.codecs import UndecodableBytes
from clonos.connectors.codecs.codec import InvalidCodec
from clonos.connectors.codecs.codec_choice import CodecRegistry, codec_of


@dataclass
class Order:
    id: int


class Point(NamedTuple):
    x: int


class Line(TypedDict):
    n: int


class Unknown: ...


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (str, "text('utf-8')"),
        (int, "number(int)"),
        (float, "number(float)"),
        (Order, "json(Order)"),
        (Point, "json(Point)"),
        (Line, "json(Line)"),
        (pyarrow.RecordBatch, "arrow()"),
    ],
)
def test_a_type_with_one_codec_needs_no_name(wanted: Any, name: str) -> None:
    assert codecs.for_type(wanted).name == name


def test_several_codecs_for_a_type_are_listed() -> None:
    with pytest.raises(InvalidCodec, match=r"several fit: codecs.json\(\), codecs.msgpack\(\), codecs.xml\(\)"):
        codecs.for_type(dict)


def test_a_type_without_codec_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(InvalidCodec, match=r"there is none\. Types with a codec: dict, float, int, list, str"):
        codecs.for_type(Unknown)


def registry_of(*edges: tuple[type, type, str]) -> CodecRegistry:
    registry = CodecRegistry()
    for outer, inner, name in edges:
        registry.register(outer, inner, partial(named, name))
    return registry


def named(name: str, _: Any) -> codecs.Codec[Any, Any]:
    codec = codecs.text()
    codec.name = name
    return codec


def test_the_shortest_chain_is_chosen_although_longer_ones_exist() -> None:
    registry = registry_of((bytes, str, "a"), (str, list, "b"), (bytes, bytes, "loop"), (list, dict, "c"))
    assert registry.chain(bytes, dict).name == "a | b | c"
    registry.register(bytes, dict, partial(named, "direct"))
    assert registry.chain(bytes, dict).name == "direct"


def test_bytes_stay_what_they_are() -> None:
    assert codecs.for_type(bytes).decode(b"a\xff") == b"a\xff"
    assert registry_of((bytes, bytes, "loop")).chain(bytes, bytes).name == "raw()"


def test_two_shortest_chains_are_refused() -> None:
    registry = registry_of((bytes, str, "a"), (str, list, "b"), (bytes, tuple, "c"), (tuple, list, "d"))
    with pytest.raises(InvalidCodec, match=r"several fit: codecs.a \| b, codecs.c \| d"):
        registry.chain(bytes, list)


def test_decode_takes_a_codec_a_type_or_a_function() -> None:
    registry = registry_of((bytes, str, "a"))
    given = codecs.json()
    assert codec_of("topic", "decode", given, registry) is given
    assert codec_of("topic", "decode", str, registry).name == "a"
    assert codec_of("topic", "decode", lambda data: int(data), registry).decode(b"17") == 17
    with pytest.raises(InvalidCodec, match="decode=7 is no codec"):
        codec_of("topic", "decode", 7, registry)


def test_an_error_of_a_function_becomes_one_of_the_record() -> None:
    codec = codec_of("topic", "decode", lambda data: int(data), CodecRegistry())
    with pytest.raises(UndecodableBytes, match="ValueError: invalid literal"):
        codec.decode(b"x")
