"""Formats of an explanation: the tree and the width of the text, the keys of the JSON, the boxes of the flowchart."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from clonos import Job, blackhole, files, values
from clonos.api.plan.explain_text import WIDTH
from clonos.job.description import graph_of
from tests.unit.api.test_explain import numbers, plan_of


def branching() -> Job:
    job = Job("branching", parallelism=2)
    left = numbers(job).map(lambda number: number + 1, name="a_step_with_a_rather_long_name_to_fill_the_line")
    right = job.source(values([1]), name="others")
    both = left.union(right).map(abs, name="both")
    both.filter(abs, name="kept").sink(blackhole(), name="first")
    both.rebalance().map(abs, name="dealt").sink(blackhole(), name="second")
    left.key_by(abs, name="by_value").count(name="counts").sink(blackhole(), name="third")
    return job


def test_the_tree_has_each_step_once_below_its_last_input() -> None:
    tree = branching().explain().partition("Logical plan\n")[2].partition("\n\n")[0]
    assert tree.splitlines() == [
        "  numbers: source values(<3 records>)",
        f"  a_step_with_a_rather_long_name_to_fill_the_line: map lambda at test_explain_formats.py:{_line()}",
        "  ├─ both: follows below, with its other inputs",
        "  └─ by_value: key_by abs",
        "     counts: count",
        "     third: sink blackhole()",
        "  others: source values(<1 records>)",
        "  both: map abs",
        "  ├─ kept: filter abs",
        "  │  first: sink blackhole()",
        "  └─ dealt: map abs (rebalance)",
        "     second: sink blackhole()",
    ]


def _line() -> int:
    return branching.__code__.co_firstlineno + 2


def test_a_line_of_text_has_at_most_100_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = branching()
    names = [f"{'long' * 5}{number}" for number in range(2)]
    job.source(files.lines(names), name="many").sink(blackhole())
    text = job.explain()
    assert len(max(text.splitlines(), key=len)) <= WIDTH
    assert all(f"{'long' * 5}{number}" in text for number in range(2))


def test_json_has_the_documented_keys() -> None:
    plan = json.loads(branching().explain("json"))
    assert plan["format"] == 1
    document = (Path(__file__).parents[3] / "docs" / "plan.md").read_text("utf-8")
    section = document.partition("## JSON")[2].partition("\n## ")[0]
    documented = {tuple(row) for row in re.findall(r"^\| `(\w+)` \| `(\w+)` \|", section, re.MULTILINE)}
    found = {("plan", key) for key in plan}
    for name in ("steps", "vertices", "exchanges"):
        found |= {(name, key) for key in plan[name][0]}
    assert documented == found


def test_mermaid_has_a_box_for_each_step_and_an_arrow_for_each_input() -> None:
    job = branching()
    job.source(values([1]), name="odd").map(lambda number: number, name="last").sink(files.jsonl('a "b" <c>#'))
    lines = job.explain("mermaid").splitlines()
    assert lines[0] == "flowchart LR"
    steps = graph_of(job).steps
    boxes = [line for line in lines if re.match(r" {8}s\d+[\[(]", line)]
    assert len(boxes) == len(steps)
    arrows = [line for line in lines if re.match(r" {4}s\d+ -->", line)]
    assert len(arrows) == sum(len(each.inputs) for each in steps)
    assert '    s1 -->|"key_by abs"| s8' in lines
    assert sum(line.startswith("    subgraph ") for line in lines) == len(plan_of(job).vertices)
    assert not any("<" in line.replace("<br>", "") for line in lines)


def test_options_of_the_call_override_those_of_the_job() -> None:
    job = branching()
    assert "by_value: 2 tasks" in job.explain()
    assert "by_value: 5 tasks" in job.explain(parallelism=5)
    assert "3 hot per task" in job.explain(standby="hot", standbys=3)
    assert "by_value: 4 tasks" in job.explain(parallelism=5, command_line={"parallelism": "4"})
