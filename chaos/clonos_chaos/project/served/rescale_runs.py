"""``clonos chaos rescales``: changes of widths with kills, in slices, until there are as many as were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from clonos_chaos.project.served.rescale_kills import KILLS, kills_of
from clonos_chaos.project.served.rescale_slice import RescaleSlice, SliceRecord
from clonos_chaos.project.slices import SliceRun, run_slices

CHANGES_A_SLICE: Final = 30
BETWEEN: Final = frozenset(str(kill) for kill in KILLS if kill.is_between_cut_and_view)

WRONG: Final = ("lost", "duplicated", "contradicted", "disordered")


@dataclass(frozen=True, slots=True)
class Rescales(SliceRun):
    """Options of the command line. ``wanted``: changes. ``per_second``: records."""

    per_second: float = 800.0


def run_rescales(wanted: Rescales) -> bool:
    """Goes on with a run. Returns whether all of its slices so far were good."""

    def perform(number: int, folder: Path, missing: int, on_change: Callable[[SliceRecord], bool]) -> SliceRecord:
        kills = kills_of((number - 1) * CHANGES_A_SLICE, min(CHANGES_A_SLICE, missing))
        return RescaleSlice(number, folder, kills, wanted.per_second).run(on_change)

    texts = line_of, complaint_of, table_of
    return run_slices(SliceRecord, wanted, perform, texts)


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
