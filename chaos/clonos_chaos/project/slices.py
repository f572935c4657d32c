"""Runs in slices, until there is as much as was asked for.

Each slice that ends has a line in ``slices.jsonl`` of the folder, with which the next run goes on. The folder of a
slice that was bad stays.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from clonos.core.model.errors import EnvironmentFault

SLICES_FILE: Final = "slices.jsonl"
BAD_MAX: Final = 3
"""Bad slices after which a run ends."""


class SliceResult(Protocol):
    """Results of a slice. ``number``: its seed. ``made``: how much of what a run is asked for."""

    number: int

    @property
    def made(self) -> int: ...

    @property
    def is_good(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class SliceRun:
    """Options of a run. ``wanted``: of all runs in the folder. ``minutes``: None is no limit. ``first``: number of the
    first slice, its seed."""

    folder: Path
    wanted: int = 1_000
    minutes: float | None = None
    first: int = 1


class SliceFailed(EnvironmentFault):
    """The job of a slice has failed, or it stands."""

    reason: str

    def __str__(self) -> str:
        return f"{self.reason}."


R = TypeVar("R", bound=SliceResult)

Perform = Callable[[int, Path, int, Callable[[R], bool]], R]
"""Performs a slice: its number, its folder, how much is missing, and a function that is called with its results so far
and returns whether to go on."""

Texts = tuple[Callable[[list[R]], str], Callable[[R], str], Callable[[list[R]], list[str]]]
"""Formats results: a line of all slices, what was wrong with one, and lines at the end."""


def run_slices(kind: type[R], run: SliceRun, perform: Perform[R], texts: Texts[R]) -> bool:
    """Goes on with a run. Returns whether all of its slices so far were good."""
    line_of, complaint_of, table_of = texts
    folder = run.folder
    folder.mkdir(parents=True, exist_ok=True)
    records = read_slices(folder, kind)
    deadline_s = float("inf") if run.minutes is None else time.monotonic() + run.minutes * 60

    def on_progress(record: R) -> bool:
        print(f"\r{line_of([*records, record])} ", end="", file=sys.stderr, flush=True)
        return time.monotonic() < deadline_s

    bad = 0
    while (made := sum(each.made for each in records)) < run.wanted and time.monotonic() < deadline_s:
        if bad == BAD_MAX:
            break
        number = records[-1].number + 1 if records else run.first
        slice_folder = folder / f"slice-{number}"
        shutil.rmtree(slice_folder, ignore_errors=True)
        slice_folder.mkdir()
        record = perform(number, slice_folder, run.wanted - made, on_progress)
        with open(folder / SLICES_FILE, "ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
        records.append(record)
        if record.is_good:
            shutil.rmtree(slice_folder)
        else:
            bad += 1
            print(f"\nBAD: slice {number}, {complaint_of(record)}; its files stay in {slice_folder}", flush=True)
    print(file=sys.stderr)
    print("\n".join((line_of(records), *table_of(records))))
    return bool(records) and all(record.is_good for record in records)


def read_slices(folder: Path, kind: type[R]) -> list[R]:
    """Returns the slices that have ended; a line that was not written whole is none."""
    file = folder / SLICES_FILE
    lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
    return [msgspec.json.decode(line, type=kind) for line in lines if line.endswith(b"\n")]
