"""Golden dialogues with a slot: ``tests/traces/slot_*.txt``, commands and all that they lead to.

``pytest tests/unit/core --rewrite-traces`` writes them anew, to be reviewed as prose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.core.slot_dialogue import play

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("slot_*.txt"))


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_a_dialogue_with_a_slot_is_as_it_was_reviewed(trace: Path, request: pytest.FixtureRequest) -> None:
    written = trace.read_text("utf-8")
    played = play(written)
    if request.config.getoption("--rewrite-traces", default=False):
        trace.write_text(played, "utf-8")
        return
    assert played == written


def test_there_are_dialogues_with_a_slot() -> None:
    assert len(TRACES) >= 8
