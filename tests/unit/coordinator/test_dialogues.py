"""Golden dialogues with a coordinator: ``tests/traces/coordinator_*.txt``, commands and all their effects.

``pytest tests/unit/coordinator --rewrite-traces`` writes them anew, to be reviewed as prose.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harnesses.coordinator_dialogue import CoordinatorDialogue
from tests.harnesses.golden_trace import play

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("coordinator_*.txt"))
TRACES_COUNT = 9


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_a_coordinator_dialogue_matches_its_golden_trace(trace: Path, compare_trace: Callable[..., None]) -> None:
    compare_trace(trace, lambda text: play(text, CoordinatorDialogue()))


def test_no_golden_trace_of_a_coordinator_is_missing() -> None:
    assert len(TRACES) == TRACES_COUNT
