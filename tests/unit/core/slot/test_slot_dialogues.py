"""Golden dialogues with a slot: ``tests/traces/slot_*.txt``, commands and all their effects.

``pytest tests/unit/core --rewrite-traces`` writes them anew, to be reviewed as prose.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harnesses.golden_trace import play
from tests.harnesses.slot_dialogue import SlotDialogue

TRACES = sorted((Path(__file__).parents[3] / "traces").glob("slot_*.txt"))
TRACES_COUNT = 39


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_a_slot_dialogue_matches_its_golden_trace(trace: Path, compare_trace: Callable[..., None]) -> None:
    compare_trace(trace, lambda text: play(text, SlotDialogue()))


def test_no_golden_trace_of_a_slot_is_missing() -> None:
    assert len(TRACES) == TRACES_COUNT
