"""Oracle of the job whose widths change: each kind of wrong output is found and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from clonos_chaos.project.served.rescaled_job import SPAN_S, SPLITS, judge, key_of
from clonos_chaos.scenario.scenario_oracle import Findings

OF_EACH = 2 * SPAN_S + 5

Outputs = dict[str, list[Any]]


def right() -> Outputs:
    """What a run without a fault leaves."""
    seen: Counter[int] = Counter()
    rows = []
    windows: dict[tuple[int, int], list[int]] = {}
    for offset in range(OF_EACH):
        for source in range(SPLITS):
            key = key_of(source, offset)
            seen[key] += 1
            drawn = {"seen": seen[key], "draw": 1_000 * source + offset, "read_ns": 5}
            rows.append({"source": source, "offset": offset, "key": key, **drawn})
            number, total = windows.get((key, offset - offset % SPAN_S), (0, 0))
            windows[key, offset - offset % SPAN_S] = [number + 1, total + offset]
    newest = {row["key"]: {name: row[name] for name in ("key", "seen", "draw")} for row in rows}
    found = [[*place, *values] for place, values in windows.items()]
    return {"files": rows, "table": deepcopy(rows), "last": list(newest.values()), "windows": found}


def judged(outputs: Outputs) -> Findings:
    sinks = {name: outputs[name] for name in ("files", "table")}
    return judge(OF_EACH, sinks, outputs["last"], outputs["windows"])


def wrong(findings: Findings) -> dict[str, int]:
    names = ("lost", "duplicated", "contradicted", "disordered")
    return {name: getattr(findings, name) for name in names if getattr(findings, name)}


def test_a_right_output_has_no_findings() -> None:
    findings = judged(right())
    assert (wrong(findings), findings.records, findings.examples) == ({}, SPLITS * OF_EACH, {})


@pytest.mark.parametrize("output", ["files", "table", "last", "windows"])
def test_a_missing_row_is_lost_and_a_repeated_row_is_duplicated(output: str) -> None:
    outputs = right()
    outputs[output].pop()
    assert wrong(judged(outputs)) == {"lost": 1}
    outputs = right()
    outputs[output].append(outputs[output][-1])
    assert wrong(judged(outputs)) == {"duplicated": 1}


def _draw_again(outputs: Outputs) -> None:
    outputs["table"][7]["draw"] += 1


def _read_again(outputs: Outputs) -> None:
    outputs["files"][7]["read_ns"] += 1


def _count_in_window(outputs: Outputs) -> None:
    outputs["windows"][3][2] += 1


def _sum_in_window(outputs: Outputs) -> None:
    outputs["windows"][3][3] += 1


def _write_older_row(outputs: Outputs) -> None:
    outputs["last"][3]["seen"] -= 1


def _write_strange_row(outputs: Outputs) -> None:
    outputs["files"].append({**outputs["files"][0], "source": SPLITS})


@pytest.mark.parametrize(
    "change",
    [_draw_again, _read_again, _count_in_window, _sum_in_window, _write_older_row, _write_strange_row],
)
def test_values_that_differ_between_outputs_or_from_the_input_are_contradicted(
    change: Callable[[Outputs], None],
) -> None:
    outputs = right()
    change(outputs)
    assert judged(outputs).contradicted >= 1


def test_state_that_has_forgotten_a_record_is_contradicted_though_each_row_came_once() -> None:
    outputs = right()
    last = outputs["last"][0]
    for name in ("files", "table"):
        of_key = [row for row in outputs[name] if row["key"] == last["key"]]
        for row in of_key[5:]:
            row["seen"] -= 1
    last["seen"] -= 1
    assert set(wrong(judged(outputs))) == {"contradicted"}


def test_records_of_a_split_that_a_key_counts_in_another_order_are_disordered() -> None:
    outputs = right()
    for name in ("files", "table"):
        first, second = [row for row in outputs[name] if (row["source"], row["key"]) == (0, 3)][:2]
        first["seen"], second["seen"] = second["seen"], first["seen"]
    assert wrong(judged(outputs)) == {"disordered": 1}
