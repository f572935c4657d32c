"""``make fuzz``: feeds inputs to all targets, and reports the number of undeclared exceptions."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from xxhash import xxh32_hexdigest

from tests.fuzz.engine import Found, Tally, shrunk
from tests.fuzz.everything import Choice
from tests.fuzz.target import folder_of
from tests.fuzz.workers import fuzz

INPUTS_USUAL: Final = 10_000_000
RUNS: Final = Path("build", "fuzz")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when no exception was unexpected."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--inputs", type=int, default=INPUTS_USUAL, metavar="N", help=f"by default {INPUTS_USUAL}")
    parser.add_argument("--seconds", type=float, metavar="S", help="end after S seconds, whatever the number")
    parser.add_argument(
        "--first-seed", type=lambda text: int(text, 0), default=1, metavar="S", help="of the first input"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="P", help="by default one a core")
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--keep", type=Path, default=RUNS, metavar="FOLDER", help="where found inputs are written")
    parser.add_argument("--verbose", action="store_true", help="say what each target has had")
    parsed = parser.parse_args(arguments)
    if parsed.inputs < 1 or parsed.processes < 1:
        parser.error("--inputs and --processes are at least 1")
    choice = Choice(tuple(parsed.target))
    targets = {target.name: target for target in choice()}
    progress = _Progress(parsed.inputs)
    tally = fuzz(choice, parsed.inputs, parsed.first_seed, parsed.processes, progress.show, parsed.seconds)
    progress.end()
    if parsed.verbose:
        _show_targets(tally)
    for found in tally.found.values():
        path = _keep(shrunk(targets[found.target], found) if found.error != "Crash" else found, parsed.keep)
        print(f"{found}\n  kept as {path}; to show it again: {_command(found)}")
    if tally.known:
        print(f"{tally.known} exceptions are known (tests/fuzz/known.py)")
    print(tally.verdict, flush=True)
    return 1 if tally.unexpected else 0


class _Progress:
    """A line that is written over, or now and then a new one where nobody looks."""

    def __init__(self, inputs: int) -> None:
        self._inputs = inputs
        self._begun_s = self._reported_s = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def show(self, tally: Tally) -> None:
        now_s = time.monotonic()
        if not self._is_terminal and now_s - self._reported_s < 30:
            return
        self._reported_s = now_s
        rate = tally.inputs / max(now_s - self._begun_s, 1e-9)
        line = f"{tally.inputs} of {self._inputs} inputs, {rate:.0f} a second, {len(tally.found)} kinds of findings"
        print(
            f"\r{line}" if self._is_terminal else line,
            end="" if self._is_terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        if self._is_terminal:
            print(file=sys.stderr)


def _show_targets(tally: Tally) -> None:
    for name in sorted(tally.calls):
        print(f"{name:32} {tally.of_target[name]:10} inputs, {tally.accepted[name] / tally.calls[name]:6.1%} accepted")


def _keep(found: Found, folder: Path) -> Path:
    function = found.place.rpartition(" ")[2].strip("<>")
    path = folder / folder_of(found.target) / f"{found.error}-{function}-{xxh32_hexdigest(found.data)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(found.data)
    return path


def _command(found: Found) -> str:
    return f"make fuzz ARGS='--inputs 1 --processes 1 --first-seed {found.seed}'"


if __name__ == "__main__":
    sys.exit(main())
