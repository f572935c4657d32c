"""Keys and rounded numbers of texts, against loops in Python."""

from __future__ import annotations

from math import isfinite
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clonos.connectors.exact_floats import DIGITS_HELD, is_held
from clonos.kernels import choice
from clonos.kernels.texts import keys_max, rounds_numbers
from tests.harnesses.both_kernels import kernels

__all__ = ["kernels"]


@given(st.lists(st.text(alphabet='":a \t\r\n\\é€😀', max_size=12), max_size=4))
def test_colons_after_a_quote_or_a_blank_are_counted(lines: list[str]) -> None:
    expected = sum(
        line[at - 1 : at + 1] in ('":', " :", "\t:", "\r:", "\n:") for line in lines for at in range(1, len(line))
    )
    assert keys_max(lines) == expected


def test_a_list_of_other_values_than_texts_is_refused() -> None:
    if choice.native is not None:
        for wrong in ((), [b'":']):
            with pytest.raises(TypeError):
                choice.native.keys_max(wrong)
        others: list[Any] = [(), [1]]
        for other in others:
            with pytest.raises(TypeError):
                choice.native.rounds_numbers(other)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map("{:.17g}".format),
    st.from_regex(r"(0|[1-9][0-9]{0,24})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)
LINES = st.sampled_from(
    ["%s", "[%s]", '{"a":%s}', '{"a": -%s, "b": "2026-11-28"}', '{"é": %s }', '{"€": [1, %s]}', '"😀", %s']
)


@given(NUMBERS, LINES)
@example("0.12345678901234567", "[%s]")
@example("99999999999999.999", "[%s]")
@example("1e-400", "[%s]")
@example("0." + "0" * 330 + "1", "[%s]")
@example("9007199254740993", "[%s]")
def test_no_number_that_a_float_changes_is_overlooked(number: str, line: str) -> None:
    is_integer = number.lstrip("-").isdigit()
    is_changed = isfinite(float(number)) and not is_integer and not is_held(number, float(number))
    for lines in ([line % number], [(line % number).encode()], ["1", "[2.5]", line % number]):
        if is_changed:
            assert rounds_numbers(lines)
        elif choice.native is not None and (is_integer or (len(number) <= DIGITS_HELD and "e" not in number.lower())):
            assert not rounds_numbers(lines)


@pytest.mark.parametrize(
    "number", ["0.30000000000000004", "1.7976931348623157", "52.520008123456789", "12345678901234.56"]
)
def test_digits_as_programs_write_floats_are_not_refused(number: str) -> None:
    expected = not is_held(number, float(number)) or choice.native is None
    assert rounds_numbers([f'{{"a": {number}}}']) == expected


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(17, 60))
def test_a_float_is_what_programs_write_of_it(number: float, digits: int) -> None:
    assert is_held(repr(number), number)
    assert is_held(f"{number:.{digits}g}", number)
