"""The oracle of the shipped job reports each kind of error, and none for a correct run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos_chaos.scenario.scenario_oracle import Findings, Row, judge

RECORDS = 24
KEYS = 8


def _outputs() -> tuple[dict[str, list[Row]], list[Row]]:
    """Outputs of a correct run of one source."""
    rows: list[Row] = []
    log: list[Row] = []
    for offset in range(RECORDS):
        drawn = {"source": 0, "offset": offset, "key": offset % KEYS, "seen": offset // KEYS + 1, "draw": offset * 7}
        drawn |= {"answer": offset + 1_000, "read_ns": offset, "by_read": 0}
        asked = {"step": "ask", "path": "", "source": 0, "offset": offset, "status": 200, "key": f"k{offset}"}
        log.append({**asked, "answer": offset + 1_000})
        for path in ("direct", "window"):
            reported = {"path": path, "window": "" if path == "direct" else "w", "at_ns": 100 + offset, "by_window": 0}
            rows.append({**drawn, **reported, "number": len(rows) + 1, "by_merge": 0, "by_table": 0})
    return {"files": [dict(row) for row in rows], "table": [dict(row) for row in rows]}, log


def _judge(outputs: dict[str, list[Row]], log: list[Row]) -> Findings:
    return judge({(0, offset) for offset in range(RECORDS)}, outputs, log)


def test_a_correct_run_is_judged_correct() -> None:
    found = _judge(*_outputs())
    assert (found.lost, found.duplicated, found.contradicted, found.disordered) == (0, 0, 0, 0)
    assert (found.calls, found.calls_repeated, found.keys_changed, found.examples) == (RECORDS, 0, 0, {})
    assert not found.calls_needless
    assert len(found.rows) == 2 * RECORDS


def _change(name: str, value: Any) -> Callable[[dict[str, list[Row]], list[Row]], None]:
    return lambda outputs, _: outputs["table"][6].update({name: value})


COUNTED = ("lost", "duplicated", "contradicted", "disordered", "calls_repeated", "calls_needless", "keys_changed")

SPOILT: dict[str, tuple[dict[str, int], Callable[[dict[str, list[Row]], list[Row]], object]]] = {
    "a row is missing": ({"lost": 1}, lambda outputs, _: outputs["table"].pop()),
    "a row is there twice": ({"duplicated": 1}, lambda outputs, _: outputs["files"].append(outputs["files"][-1])),
    "a number was drawn again": ({"contradicted": 1}, _change("draw", 1)),
    "an answer was asked anew": ({"contradicted": 1}, _change("answer", 999)),
    "the clock was read anew": ({"contradicted": 1}, _change("read_ns", 999)),
    "a record is in two windows": ({"contradicted": 1}, _change("window", "another")),
    "a record is from nowhere": ({"lost": 1, "contradicted": 2, "disordered": 2}, _change("offset", 999)),
    "an answer was never given": ({"contradicted": 1}, lambda _, log: log[3].update(answer=5)),
    "a count has a gap": (
        {"contradicted": 1},
        lambda outputs, _: [row.update(seen=9) for rows in outputs.values() for row in rows[6:8]],
    ),
    "a channel was turned round": ({"disordered": 16}, lambda outputs, _: outputs["table"].reverse()),
    "a question was repeated": ({"calls_repeated": 1}, lambda _, log: log.append(log[3])),
    "a logged call was made again": (
        {"calls_repeated": 1, "calls_needless": 1},
        lambda _, log: log.append({**log[3], "answer": 9}),
    ),
    "an answer of one step came from another": ({"contradicted": 1}, _change("by_table", 1_003)),
    "a question has two keys": (
        {"calls_repeated": 1, "keys_changed": 1},
        lambda _, log: log.append({**log[3], "key": "another"}),
    ),
}


@pytest.mark.parametrize("how", SPOILT)
def test_the_oracle_reports_each_planted_error_and_no_other(how: str) -> None:
    expected, spoil = SPOILT[how]
    outputs, log = _outputs()
    spoil(outputs, log)
    found = _judge(outputs, log)
    assert {what: count for what in COUNTED if (count := getattr(found, what))} == expected


def test_a_call_whose_first_answer_was_lost_may_be_repeated() -> None:
    outputs, log = _outputs()
    log.insert(3, {**log[3], "answer": 9})
    found = _judge(outputs, log)
    assert (found.calls_repeated, found.calls_needless, found.contradicted) == (1, 0, 0)


def test_a_source_may_repeat_a_call_under_another_key() -> None:
    outputs, log = _outputs()
    again = {**log[3], "step": "read"}
    log += [again, {**again, "key": "another"}]
    assert not _judge(outputs, log).keys_changed
