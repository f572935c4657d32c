"""Job whose widths change while it runs, and its oracle, which knows the input and imports nothing of the runtime.

    read -> stamp -> count (by key: number, draw) -> written -> files (transactional), table (immediate)
                                                  -> last (by key: table with a key, immediate)
                                                  -> window (by key, event time) -> windows (transactional)

Each record carries what was drawn and counted for it, so that two outputs may contradict each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from clonos.agg import count, sum_
from clonos.api.windows import Tumbling
from clonos.connectors import files, sqlite
from clonos.job import Job
from clonos_chaos.scenario.scenario_gate import Gated, GatedReader
from clonos_chaos.scenario.scenario_oracle import Findings, Row, committed_rows, table_rows
from clonos_services import clock
from clonos_services import random as causal_random

SPLITS: Final = 4
KEYS: Final = 61
BEGIN_S: Final = 1_700_000_000
SPAN_S: Final = 100
"""Windows of event time; a record is as late as its offset."""

STEPS: Final = ("read", "count", "written", "last", "window")
"""Steps that have a width of their own."""

COLUMNS: Final = ("source", "offset", "key", "seen", "draw", "read_ns")


class Splits(Gated):
    """Source of (split, offset) with a split for each of the most tasks."""

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the splits."""
        return [b"%d" % split for split in range(SPLITS)]

    def reader(self) -> GatedReader:
        """Makes a reader of one split."""
        return GatedReader(Path(self.path))


def rescaled(folder: Path) -> Job:
    """Makes the job with its outputs in ``folder``, with two tasks of each step."""
    job = Job("rescaled", parallelism=2)
    read = job.source(Splits(folder), timestamps=lambda record: BEGIN_S + record[1], name="read")
    counted = read.map(stamp).key_by("key").stateful_map(number, name="count")
    written = counted.rebalance().map(lambda row: row, name="written")
    written.sink(files.jsonl(str(folder / "output")), name="files")
    written.sink(sqlite(str(folder / "table.sqlite"), "rows", columns=COLUMNS), name="table")
    last = sqlite(str(folder / "last.sqlite"), "rows", columns=("key", "seen", "draw"), upsert=["key"])
    counted.map(lambda row: {name: row[name] for name in ("key", "seen", "draw")}).key_by("key").sink(last, name="last")
    windows = (
        counted.key_by("key").window(Tumbling(f"{SPAN_S}s")).aggregate(n=count(), sum=sum_("offset"), name="window")
    )
    rows = windows.map(
        lambda each: [each.key, int(each.start.timestamp()) - BEGIN_S, each.value["n"], each.value["sum"]]
    )
    rows.sink(files.jsonl(str(folder / "windows")), name="windows")
    return job


def stamp(record: tuple[int, int]) -> Row:
    """Makes a row of a record, with the time of reading."""
    source, offset = record
    return {"source": source, "offset": offset, "key": key_of(source, offset), "read_ns": clock.time_ns()}


def key_of(source: int, offset: int) -> int:
    """Returns the key of a record."""
    return (source * 7 + offset) % KEYS


def number(_key: int, seen: int | None, row: Row) -> tuple[int, Row]:
    """Numbers the records of a key, and draws for each."""
    following = (seen or 0) + 1
    return following, {**row, "seen": following, "draw": causal_random.getrandbits(40)}


# ------------------------------------------------------------------ the oracle


def judge_rescaled(folder: Path) -> Findings:
    """Judges all outputs in a run's folder; the gate file has the number of records of each split."""
    of_each = int((folder / "gate").read_text("utf-8").split()[0])
    outputs = {"files": list(committed_rows(folder / "output")), "table": list(table_rows(folder / "table.sqlite"))}
    return judge(of_each, outputs, list(table_rows(folder / "last.sqlite")), list(committed_rows(folder / "windows")))


def judge(of_each: int, outputs: dict[str, list[Row]], last: list[Row], windows: list[Any]) -> Findings:
    """Compares outputs with the input, and with each other."""
    expected = {(source, offset) for source in range(SPLITS) for offset in range(of_each)}
    findings = Findings(records=len(expected))
    drawn: dict[tuple[int, int], Row] = {}
    for name, rows in outputs.items():
        findings.count(name, ((row["source"], row["offset"]) for row in rows), expected)
        for row in rows:
            values = {column: row[column] for column in COLUMNS}
            before = drawn.setdefault((row["source"], row["offset"]), values)
            findings.compare(f"{name} {row['source']}, {row['offset']}", before, values)
    newest = _check_counts(findings, drawn.values())
    findings.count("last", (row["key"] for row in last), newest.keys())
    for row in last:
        findings.compare(f"last {row['key']}", newest.get(row["key"]), (row["seen"], row["draw"]))
    wanted = _windows_of(expected)
    findings.count("windows", ((key, start) for key, start, *_ in windows), wanted.keys())
    for key, start, *values in windows:
        findings.compare(f"window {key}, {start}", wanted.get((key, start)), values)
    return findings


def _check_counts(findings: Findings, rows: Iterable[Row]) -> dict[int, tuple[int, int]]:
    """Checks that each key was counted 1, 2, 3 ..., and each split of it in order. Returns number and draw of the last
    record of each key."""
    of_key: dict[int, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        other = of_key[row["key"]].setdefault(row["seen"], row)
        findings.compare(f"number {row['seen']} of key {row['key']}", other, row)
    newest = {}
    for key, by_number in of_key.items():
        last_offset: dict[int, int] = {}
        if sorted(by_number) != list(range(1, len(by_number) + 1)):
            findings.contradicted += 1
            findings.note("contradicted", f"key {key}: {len(by_number)} numbers up to {max(by_number)}")
        for seen in sorted(by_number):
            row = by_number[seen]
            if row["offset"] <= last_offset.get(row["source"], -1):
                findings.disordered += 1
                findings.note("disordered", f"key {key}: {row['source']}, {row['offset']} has number {seen}")
            last_offset[row["source"]] = row["offset"]
        newest[key] = (max(by_number), by_number[max(by_number)]["draw"])
    return newest


def _windows_of(records: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    """Returns number and sum of offsets of each window, by key and start."""
    found: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0])
    for source, offset in records:
        each = found[key_of(source, offset), offset - offset % SPAN_S]
        each[0] += 1
        each[1] += offset
    return found
