"""Values of PostgreSQL that Python holds exactly, and those that are errors of their rows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clonos.connectors.postgres.column_values import Unreadable, ValueUnreadable, interval, json_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("PT0S", timedelta(0)),
        ("P1D", timedelta(days=1)),
        ("P-1DT2H", timedelta(days=-1, hours=2)),
        ("PT-2H-3M-4.5S", -timedelta(hours=2, minutes=3, seconds=4.5)),
        ("PT-0.000001S", timedelta(microseconds=-1)),
        ("P999999999DT23H59M59.999999S", timedelta.max),
    ],
)
def test_an_interval_without_months_is_a_timedelta(text: str, value: timedelta) -> None:
    assert interval(text) == value


@pytest.mark.parametrize("text", ["P1M", "P1Y", "P1Y2M3DT4H5M6S", "P-1M30D"])
def test_an_interval_with_months_has_no_fixed_length(text: str) -> None:
    with pytest.raises(Unreadable, match="years or months, whose length is not fixed"):
        interval(text)


@pytest.mark.parametrize("text", ["infinity", "-infinity", "P1000000000D", "PT99999999999999H", "P1D2"])
def test_an_interval_that_no_timedelta_holds_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable, match="a timedelta cannot hold it"):
        interval(text)


def test_json_has_the_numbers_that_were_written() -> None:
    assert json_value("[0.1, 1.50, 9007199254740993, 1e10, 1.7976931348623157e308, -0.0]") == [
        *(0.1, 1.5, 9007199254740993, 1e10, 1.7976931348623157e308, -0.0),
    ]


@pytest.mark.parametrize("number", ["0.12345678901234567890", "1e-400", "123456789012345678.5"])
def test_a_number_of_json_that_a_float_rounds_is_unreadable(number: str) -> None:
    with pytest.raises(Unreadable, match=f"its number {number} has more digits than a float holds"):
        json_value(f'{{"a": [{number}]}}')


def test_a_number_of_json_beyond_the_range_of_a_float_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="its number 1e400 is beyond the range of a float"):
        json_value("[1e400]")


def test_json_that_is_too_deep_or_has_an_endless_int_is_unreadable() -> None:
    assert json_value("[" * 64 + "]" * 64)
    for text in ("[" * 65 + "]" * 65, b"[" * 100_000 + b"]" * 100_000, "1" * 5_000):
        with pytest.raises(Unreadable):
            json_value(text)


def test_an_error_names_row_field_value_and_a_way_past_it() -> None:
    error = ValueUnreadable("postgres.query of db/shop", "id = 2", "at", "infinity", "timestamp too large", "Cast it.")
    assert str(error) == (
        "postgres.query of db/shop, row id = 2: the value 'infinity' of the column at cannot be read: timestamp too"
        " large. Cast it. Job(..., errors=sink) sets such records aside."
    )
