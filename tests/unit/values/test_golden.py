"""The bytes of format 1 stay readable and unchanged."""

from __future__ import annotations

import pytest

from clonos.core.values import (
    decode_rows,
    decode_timed_rows,
    decode_value,
    encode_rows,
    encode_timed_rows,
    encode_value,
)
from clonos.core.values.key_encoding import decode_key, encode_key
from tests.unit.values.golden import KEYS, ROWS, TIMED, VALUES, lines
from tests.unit.values.samples import same

GOLDEN = lines()


def test_every_sample_has_a_golden_line() -> None:
    assert list(GOLDEN) == [*VALUES, *ROWS, *KEYS, *TIMED]


@pytest.mark.parametrize("name", VALUES)
def test_a_value_has_its_golden_bytes(name: str) -> None:
    assert encode_value(VALUES[name]).hex() == GOLDEN[name]
    assert same(decode_value(bytes.fromhex(GOLDEN[name])), VALUES[name])


@pytest.mark.parametrize("name", ROWS)
def test_a_batch_has_its_golden_bytes(name: str) -> None:
    assert encode_rows(ROWS[name]).hex() == GOLDEN[name]
    assert same(decode_rows(bytes.fromhex(GOLDEN[name])), ROWS[name])


@pytest.mark.parametrize("name", KEYS)
def test_a_key_has_its_golden_bytes(name: str) -> None:
    assert encode_key(KEYS[name]).hex() == GOLDEN[name]
    assert same(decode_key(bytes.fromhex(GOLDEN[name])), KEYS[name])


@pytest.mark.parametrize("name", TIMED)
def test_a_batch_with_timestamps_has_its_golden_bytes(name: str) -> None:
    rows, times = TIMED[name]
    assert encode_timed_rows(rows, times).hex() == GOLDEN[name]
    found = decode_timed_rows(bytes.fromhex(GOLDEN[name]))
    assert same(found.rows, rows)
    assert list(found.times) == times
