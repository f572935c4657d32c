"""The oracle of orders: each order once in the output with the service's answer, and the number of repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos.core.model.errors import JobError
from clonos_chaos.scenario.scenario_job import make_job
from clonos_chaos.scenario.scenario_orders import IN_DOUBT, judge

EXPECTED = {(0, 0), (0, 1)}


def _row(offset: int, answer: int) -> dict[str, Any]:
    return {"source": 0, "offset": offset, "answer": answer}


def _line(offset: int, answer: int, key: str = "k") -> dict[str, Any]:
    return {**_row(offset, answer), "key": f"{key}{offset}"}


def test_orders_placed_once_are_judged_correct() -> None:
    found = judge(EXPECTED, [_row(0, 7), _row(1, 8)], [_line(0, 7), _line(1, 8)])
    assert (found.lost, found.duplicated, found.contradicted, found.disordered) == (0, 0, 0, 0)
    assert (found.calls, found.calls_repeated, found.calls_needless, found.calls_in_doubt) == (2, 0, 0, 0)


def test_a_second_call_is_counted_and_its_answer_must_match_the_output() -> None:
    log = [_line(0, 7), _line(0, 9), _line(1, 8, "k"), _line(1, 6, "other")]
    found = judge(EXPECTED, [_row(0, 9), _row(1, 8)], log)
    assert (found.calls_repeated, found.calls_needless, found.keys_changed) == (2, 1, 1)


def test_missing_repeated_unknown_invented_and_doubtful_orders_are_distinguished() -> None:
    rows = [_row(1, IN_DOUBT), _row(1, IN_DOUBT), _row(5, 3)]
    found = judge(EXPECTED, rows, [_line(1, 8), _line(5, 4)])
    assert (found.lost, found.duplicated, found.contradicted, found.calls_in_doubt) == (1, 1, 2, 2)
    assert judge(EXPECTED, [_row(1, 8), _row(0, 7)], [_line(0, 7), _line(1, 8)]).disordered == 1


def test_an_unknown_mode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"'twice'.*plain, intent, reconcile"):
        make_job("ordered", tmp_path, "http://127.0.0.1:1/ask", {"mode": "twice"})
