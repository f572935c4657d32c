"""Counts of keys, against a loop in Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.kernels import choice
from clonos.kernels.texts import keys_max
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
