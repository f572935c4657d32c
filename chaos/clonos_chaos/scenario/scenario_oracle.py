"""Oracle of the shipped job: reads both outputs and the service's log, and imports nothing of the runtime.

Each (source, offset, path) must be in each sink once. Draws for a record must be equal wherever they are seen, and an
answer must be the service's last answer to exactly this question.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES_MAX = 5
PATHS = ("direct", "window")
DRAWN = ("key", "seen", "draw", "answer", "read_ns", "by_read")
MERGED = ("window", "at_ns", "number", "by_window", "by_merge")
ANSWERS = {"by_read": ("read", ""), "answer": ("ask", ""), "by_window": ("window", "")}
"""Columns with answers of the service: step and path of the question."""

BY_PATH = {"by_merge": "merge", "by_table": "table"}
NOT_ASKED, NO_ANSWER = 0, -1
KEYS_MAY_CHANGE = {"read": ("ask", "window", "order", "merge", "table"), "window": ("merge", "table")}
"""Steps whose calls may get new keys, because the causes may be lost with the step and another incarnation may make the
calls after another checkpoint: sources and processing-time windows. Each with the steps downstream, to which the same
applies if they are lost together."""

Row = dict[str, Any]
Question = tuple[str, str, int, int]
"""Step, path, source, offset."""


@dataclass(slots=True)
class Findings:
    """Findings. ``rows``: (instant at the sinks, instant of reading) of each output record, for the curves."""

    records: int = 0
    lost: int = 0
    duplicated: int = 0
    contradicted: int = 0
    disordered: int = 0
    calls: int = 0
    calls_repeated: int = 0
    calls_needless: int = 0  # repeated although an earlier answer is in the output
    calls_in_doubt: int = 0  # calls in doubt, reported to user code
    keys_changed: int = 0  # questions repeated under another idempotency key, where that is not permitted
    examples: dict[str, list[str]] = field(default_factory=dict)
    by_sink: dict[str, dict[str, int]] = field(default_factory=dict)
    rows: list[tuple[int, int]] = field(default_factory=list)

    def note(self, what: str, example: str) -> None:
        """Records an example, up to a limit."""
        examples = self.examples.setdefault(what, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)

    def count(self, output: str, found: Iterable[Hashable], wanted: Collection[Hashable]) -> None:
        """Compares the places of an output with those that there must be, each once."""
        seen, places = Counter(found), set(wanted)
        again = {place: times for place, times in seen.items() if times > 1}
        for what, which in (
            ("lost", places - seen.keys()),
            ("duplicated", again),
            ("contradicted", seen.keys() - places),
        ):
            for place in sorted(which, key=repr):
                self.note(what, f"{output} {place}")
        lost, duplicated = len(places - seen.keys()), seen.total() - len(seen)
        self.lost += lost
        self.duplicated += duplicated
        self.contradicted += len(seen.keys() - places)
        self.by_sink[output] = {"rows": seen.total(), "lost": lost, "duplicated": duplicated}

    def compare(self, place: str, before: Any, values: Any) -> None:
        """Compares two sights of one place. ``before``: None is none."""
        if before is not None and before != values:
            self.contradicted += 1
            self.note("contradicted", f"{place}: {values}, and not {before}")


def committed_rows(folder: Path) -> Iterator[Row]:
    """Yields the records that the manifests of an output make visible, in order. Raises ValueError: a part is torn."""
    folder = folder.resolve()  # the manifests are beside the real folder
    for manifest in sorted((folder.parent / f".{folder.name}.clonos" / "manifests").glob("[0-9]*.manifest")):
        for part in json.loads(manifest.read_text("utf-8"))["parts"]:
            lines = (folder / part["name"]).read_text("utf-8").splitlines()
            if len(lines) != part["rows"]:
                raise ValueError(f"{folder}: the part {part['name']} has {len(lines)} rows, not {part['rows']}")
            yield from map(json.loads, lines)


def table_rows(file: Path) -> Iterator[Row]:
    """Yields the rows of the immediate sink in the order of their arrival."""
    if not file.exists():
        return
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        connection.row_factory = sqlite3.Row
        yield from map(dict, connection.execute("SELECT * FROM rows ORDER BY rowid"))
    except sqlite3.OperationalError:  # the sink has written nothing yet
        return
    finally:
        connection.close()


def service_log(file: Path) -> Iterator[Row]:
    """Yields the logged questions with their answers, without an incomplete last line."""
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def judge_folder(folder: Path, sources: int) -> Findings:
    """Judges the output in a run's folder; the gate file has the number of admitted records."""
    outputs = {"files": list(committed_rows(folder / "output")), "table": list(table_rows(folder / "table.sqlite"))}
    of_each = int((folder / "gate").read_text("utf-8").split()[0])
    expected = {(source, offset) for source in range(sources) for offset in range(of_each)}
    return judge(expected, outputs, service_log(folder / "calls.jsonl"))


def judge(expected: set[tuple[int, int]], outputs: dict[str, list[Row]], log: Iterable[Row]) -> Findings:
    """Compares outputs with the input and with the answers of the service."""
    findings = Findings(records=len(expected))
    answers = _read_log(findings, log)
    drawn: dict[tuple[int, int], Row] = {}
    merged: dict[tuple[int, int, str], Row] = {}
    shown: dict[Question, int] = {}
    for sink, rows in outputs.items():
        _count(findings, sink, rows, expected)
        _check_order(findings, sink, rows)
        for row in rows:
            place = (row["source"], row["offset"])
            _compare(findings, drawn, place, {name: row[name] for name in DRAWN})
            _compare(findings, merged, (*place, row["path"]), {name: row[name] for name in MERGED})
            shown.update(_answers_in(row))
    _check_answers(findings, shown, answers)
    _check_counts(findings, drawn)
    findings.rows = sorted((row["at_ns"], drawn[place[:2]]["read_ns"]) for place, row in merged.items())
    return findings


def _read_log(findings: Findings, log: Iterable[Row]) -> dict[Question, list[int]]:
    """Returns the answers to each question, in order."""
    answers: dict[Question, list[int]] = defaultdict(list)
    keys: dict[Question, set[str]] = defaultdict(set)
    for line in log:
        question = (line["step"], line["path"], line["source"], line["offset"])
        findings.calls += 1
        findings.calls_repeated += question in answers
        answers[question].append(line["answer"])
        keys[question].add(line["key"])
    for question, found in keys.items():
        if len(found) > 1 and question[0] not in KEYS_MAY_CHANGE:
            findings.keys_changed += 1
            findings.note("keys_changed", f"{question}: {len(found)} keys")
    return answers


def _answers_in(row: Row) -> Iterator[tuple[Question, int]]:
    """Yields the answers that a row holds."""
    place = (row["source"], row["offset"])
    for name, (step, path) in (*ANSWERS.items(), *((name, (step, row["path"])) for name, step in BY_PATH.items())):
        if row[name] != NOT_ASKED:
            yield (step, path, *place), row[name]


def _count(findings: Findings, sink: str, rows: list[Row], expected: set[tuple[int, int]]) -> None:
    seen = Counter((row["source"], row["offset"], row["path"]) for row in rows)
    wanted = {(*place, path) for place in expected for path in PATHS}
    lost = sorted(wanted - seen.keys())
    again = sorted(place for place, times in seen.items() if times > 1)
    strange = sorted(seen.keys() - wanted)
    for what, places in (("lost", lost), ("duplicated", again), ("contradicted", strange)):
        for place in places[:EXAMPLES_MAX]:
            findings.note(what, f"{sink} {place}")
    duplicated = sum(times - 1 for times in seen.values())
    findings.lost += len(lost)
    findings.duplicated += duplicated
    findings.contradicted += len(strange)
    findings.by_sink[sink] = {"rows": len(rows), "lost": len(lost), "duplicated": duplicated}


def _check_order(findings: Findings, sink: str, rows: list[Row]) -> None:
    """Checks that the direct path keeps the order of each source and key."""
    last: dict[tuple[int, int], int] = {}
    for row in rows:
        if row["path"] != "direct":
            continue
        channel = (row["source"], row["key"])
        if row["offset"] < last.get(channel, -1):
            findings.disordered += 1
            findings.note("disordered", f"{sink} {channel}: {row['offset']} after {last[channel]}")
        last[channel] = max(last.get(channel, -1), row["offset"])


def _compare(findings: Findings, known: dict[Any, Row], place: Any, values: Row) -> None:
    before = known.setdefault(place, values)
    if before != values:
        findings.contradicted += 1
        changed = [f"{name} {before[name]} and {values[name]}" for name in values if before[name] != values[name]]
        findings.note("contradicted", f"{place}: {', '.join(changed)}")


def _check_answers(findings: Findings, shown: dict[Question, int], answers: dict[Question, list[int]]) -> None:
    for question, answer in shown.items():
        given = answers.get(question, [])
        if answer == NO_ANSWER:
            continue
        if answer not in given:
            findings.contradicted += 1
            findings.note("contradicted", f"{question} has the answer {answer}, which was never given to it")
        elif given[-1] != answer:
            findings.calls_needless += 1
            findings.note(
                "calls_needless", f"{question} was asked {len(given)} times, number {given.index(answer) + 1} left"
            )


def _check_counts(findings: Findings, drawn: dict[Any, Row]) -> None:
    """Checks that the state of each key has counted 1, 2, 3 ... without gap or repeat."""
    seen: dict[int, list[int]] = defaultdict(list)
    for values in drawn.values():
        seen[values["key"]].append(values["seen"])
    for key, counts in seen.items():
        wrong = len(set(range(1, len(counts) + 1)) - set(counts))
        if wrong and not findings.lost:
            findings.contradicted += wrong
            findings.note("contradicted", f"the count of key {key} misses {wrong} of {len(counts)} numbers")
