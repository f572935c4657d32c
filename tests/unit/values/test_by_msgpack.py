"""Another library decodes our bytes to the same values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from clonos.core.values import encode_rows, encode_value
from tests.unit.values import by_msgpack
from tests.unit.values.golden import VALUES
from tests.unit.values.samples import STEADY, batches, same, values


@pytest.mark.parametrize("name", VALUES)
def test_each_kind_of_value_is_encoded_as_the_documented_msgpack(name: str) -> None:
    assert same(by_msgpack.value_of(encode_value(VALUES[name])), VALUES[name])


@STEADY
@given(values)
def test_a_value_is_decoded_alike_by_another_decoder(value: Any) -> None:
    assert same(by_msgpack.value_of(encode_value(value)), value)


@pytest.mark.slow
@STEADY
@given(batches)
def test_rows_are_decoded_alike_by_another_decoder(rows: list[Any]) -> None:
    assert same(by_msgpack.rows_of(encode_rows(rows)), rows)
