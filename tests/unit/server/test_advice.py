"""Advice about alarms: its words are those of the alarms in the code."""

from __future__ import annotations

import pytest

from clonos.server.job_api.advice import ADVICE, OTHERWISE, advice_for
from tests.tidy.source import sources

RAISED_IN = ("clonos/core", "clonos/operators", "clonos/api", "clonos_services", "standby")


@pytest.mark.parametrize("words", [words for words, _ in ADVICE])
def test_the_words_of_an_advice_are_in_the_text_of_an_alarm(words: str) -> None:
    assert any(words in source.text for source in sources() if source.is_under(*RAISED_IN)), words


def test_an_alarm_without_advice_of_its_own_gets_a_general_one() -> None:
    assert advice_for("above a soft limit: the process of a/0") != OTHERWISE
    assert advice_for("nothing that is known") == OTHERWISE
