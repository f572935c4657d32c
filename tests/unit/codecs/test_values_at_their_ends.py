"""Values of every kind at their ends, through each codec and back: equal, as its documented text, or an error."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID

import msgspec
import pytest

from clonos import codecs
from clonos.connectors.codecs import UnencodableValue
from tests.unit.connectors.test_exact_arrays import ENDS, is_same

MORE = [{1, 2}, frozenset([1]), (1, 2), {1: 2}, {1: 1, "1": 2}, UUID(int=7), [b"x"], {"d": dt.date.max}, 10**400]
VALUES = [*ENDS, *MORE]
CODECS: dict[str, codecs.Codec[Any, Any]] = {
    "json": codecs.json(),
    "msgpack": codecs.msgpack(),
    "int": codecs.for_type(int),
    "float": codecs.for_type(float),
    "str": codecs.for_type(str),
    "latin-1": codecs.text("latin-1"),
    "bytes": codecs.for_type(bytes),
    "compressed": codecs.gzip() | codecs.msgpack(),
}


def as_text(value: Any) -> Any:
    """A value as both formats document it: texts for what they lack, arrays for sets and tuples."""
    text = msgspec.to_builtins(value, str_keys=True)
    return list(text) if isinstance(text, tuple) else text


@pytest.mark.parametrize("name", CODECS)
def test_a_value_comes_out_of_a_codec_as_it_went_in_or_is_refused(name: str) -> None:
    codec = CODECS[name]
    held = 0
    for value in VALUES:
        try:
            data = codec.encode(value)
        except UnencodableValue:
            continue
        held += 1
        assert codec.trial(value) == data
        found = codec.decode(data)
        is_text = name in ("json", "msgpack", "compressed") and found in (as_text(value), msgspec.to_builtins(value))
        assert is_same(found, value) or is_text, (value, found)
    assert held > 2
