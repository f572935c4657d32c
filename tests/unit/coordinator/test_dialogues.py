"""Golden dialogues: ``traces/*.txt``, commands and the full answer. CLONOS_REWRITE_TRACES=1 writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.coordinator.dialogue import play

TRACES = sorted(Path(__file__).with_name("traces").glob("*.txt"))


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_a_dialogue_is_as_it_was_reviewed(trace: Path) -> None:
    written = trace.read_text("utf-8")
    played = play(written)
    if os.environ.get("CLONOS_REWRITE_TRACES"):
        trace.write_text(played, "utf-8")
        return
    assert played == written


def test_there_are_dialogues() -> None:
    assert len(TRACES) >= 6
