"""``clonos chaos rescales``: changes of widths with kills, in slices, until there are as many as were asked for.

Each slice that ends has a line in ``slices.jsonl`` of the folder, with which the next run goes on. The folder of a
slice that was bad stays.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from clonos_chaos.project.served.rescale_kills import KILLS, kills_of
from clonos_chaos.project.served.rescale_slice import RescaleSlice, SliceRecord

SLICES_FILE: Final = "slices.jsonl"
CHANGES_A_SLICE: Final = 30
BAD_MAX: Final = 3
"""Bad slices after which a run ends."""

BETWEEN: Final = frozenset(str(kill) for kill in KILLS if kill.is_between_cut_and_view)

WRONG: Final = ("lost", "duplicated", "contradicted", "disordered")


@dataclass(frozen=True, slots=True)
class Rescales:
    """Options of the command line. ``minutes``: None is no limit. ``first``: number of the first slice, its seed."""

    folder: Path
    changes: int = 1_000
    minutes: float | None = None
    first: int = 1
    per_second: float = 800.0


def run_rescales(wanted: Rescales) -> bool:
    """Goes on with a run. Returns whether all of its slices so far were good."""
    wanted.folder.mkdir(parents=True, exist_ok=True)
    records = read_slices(wanted.folder)
    deadline_s = float("inf") if wanted.minutes is None else time.monotonic() + wanted.minutes * 60

    def on_change(record: SliceRecord) -> bool:
        print(f"\r{line_of([*records, record])} ", end="", file=sys.stderr, flush=True)
        return time.monotonic() < deadline_s

    bad = 0
    while (made := sum(each.changes for each in records)) < wanted.changes and time.monotonic() < deadline_s:
        if bad == BAD_MAX:
            break
        number = records[-1].number + 1 if records else wanted.first
        folder = wanted.folder / f"slice-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        kills = kills_of((number - 1) * CHANGES_A_SLICE, min(CHANGES_A_SLICE, wanted.changes - made))
        record = RescaleSlice(number, folder, kills, wanted.per_second).run(on_change)
        with open(wanted.folder / SLICES_FILE, "ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
        records.append(record)
        if record.is_good:
            shutil.rmtree(folder)
        else:
            bad += 1
            print(f"\nBAD: slice {number}, {complaint_of(record)}; its files stay in {folder}", flush=True)
    print(file=sys.stderr)
    print(line_of(records))
    print("\n".join(table_of(records)))
    return bool(records) and all(record.is_good for record in records)


def read_slices(folder: Path) -> list[SliceRecord]:
    """Returns the slices that have ended; a line that was not written whole is none."""
    file = folder / SLICES_FILE
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    return [msgspec.json.decode(line, type=SliceRecord) for line in lines if line.endswith(b"\n")]


def line_of(records: Iterable[SliceRecord]) -> str:
    """Formats the counts of all slices as one line."""
    records = list(records)
    total = {name: sum(getattr(each, name) for each in records) for name in ("done", "given_up", "missed", *WRONG)}
    kills = sum(sum(counts) for each in records for counts in each.kills.values())
    between = sum(sum(counts) for each in records for kill, counts in each.kills.items() if kill in BETWEEN)
    bad = sum(not each.is_good for each in records)
    return (
        f"{total['done'] + total['given_up']} changes, {total['done']} done, {total['given_up']} given up, {kills} with"
        f" a kill, {between} between cut and view; {len(records)} slices, {bad} bad;"
        f" {sum(each.records for each in records):,} records, " + ", ".join(f"{total[name]} {name}" for name in WRONG)
    )


def complaint_of(record: SliceRecord) -> str:
    """Says what was wrong with a slice."""
    counts = ", ".join(f"{getattr(record, name)} {name}" for name in WRONG)
    examples = "; ".join(f"{what}: {', '.join(found)}" for what, found in record.examples.items())
    return record.failure or f"{counts} ({examples})"


def table_of(records: Iterable[SliceRecord]) -> list[str]:
    """Lists the kills: how many changes were done, and how many given up."""
    done, given_up, reasons = Counter[str](), Counter[str](), Counter[str]()
    for record in records:
        reasons.update(record.reasons)
        for name, counts in {**record.kills, "no kill": record.plain}.items():
            done[name] += counts[0]
            given_up[name] += counts[1]
    names = sorted({*done, *given_up})
    return [
        *(f"{name}: {done[name]} done, {given_up[name]} given up" for name in names),
        *(f"given up {times} times: {reason}" for reason, times in reasons.most_common()),
    ]
