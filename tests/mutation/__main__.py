"""``python -m tests.mutation --count N --first-seed S --json FILE``: which random mutants of the core survive.

A seed is one mutant of the tree as it is. Survivors are shown with their diff; docs/design/mutation.md explains those
that are known. Exit code 1: some survived.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.mutation.judging import Judge, Verdict
from tests.mutation.sites import Choice, Site

ROOT = Path(__file__).parents[2]
AT_ONCE_MAX = 2


class Report:
    """Counts, shows each mutant as it is judged, and keeps the file up to date."""

    def __init__(self, count: int, file: Path | None) -> None:
        self._count, self._file = count, file
        self._lock = threading.Lock()
        self.mutants: list[dict[str, Any]] = []

    @property
    def survivors(self) -> list[dict[str, Any]]:
        """Surviving mutants, by seed."""
        return [mutant for mutant in sorted(self.mutants, key=lambda one: one["seed"]) if not mutant["caught_by"]]

    def add(self, seed: int, path: str, site: Site, source: str, verdict: Verdict) -> None:
        """A mutant was judged; called by any thread."""
        with self._lock:
            self.mutants.append(
                {
                    "seed": seed,
                    "kind": site.kind,
                    "place": f"{path}:{site.line}",
                    "before": site.before,
                    "after": site.after,
                    "caught_by": verdict.by,
                    "seconds": round(verdict.seconds, 1),
                    "diff": site.diff(path, source),
                }
            )
            done = f"{len(self.mutants)}/{self._count}"
            change = f"{_short(site.before)} -> {_short(site.after)}"
            fate = f"caught by {verdict.by}" if verdict.by else "SURVIVED"
            print(f"{done:>8} seed {seed} {path}:{site.line} {change}: {fate} ({verdict.seconds:.0f} s)", flush=True)
            if self._file is not None:
                self._file.write_text(json.dumps(sorted(self.mutants, key=lambda one: one["seed"]), indent=1), "utf-8")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 40 else f"{line[:37]}...")


def main() -> int:
    """Judges the mutants of the seeds that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__, allow_abbrev=False)
    parser.add_argument("--count", type=int, default=20, metavar="N", help="mutants (default: 20)")
    parser.add_argument("--first-seed", type=int, default=1, metavar="SEED", help="seed of the first (default: 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to this file, as it is found")
    parser.add_argument("--worlds", type=int, default=300, metavar="N", help="worlds for who passes the unit tests")
    parser.add_argument("--folder", default="clonos/core", help="what is mutated (default: clonos/core)")
    parser.add_argument("--at-once", type=int, choices=range(1, AT_ONCE_MAX + 1), default=AT_ONCE_MAX)
    parser.add_argument("--show", action="store_true", help="show the mutants of these seeds, and judge none")
    options = parser.parse_args()
    sources = {
        file.relative_to(ROOT).as_posix(): file.read_text("utf-8") for file in (ROOT / options.folder).rglob("*.py")
    }
    seeds = range(options.first_seed, options.first_seed + options.count)
    choice = Choice(sources)
    chosen = {seed: choice.draw(seed) for seed in seeds}
    if options.show:
        for seed, (path, site) in chosen.items():
            print(f"seed {seed}, {site.kind}:\n{site.diff(path, sources[path])}")
        return 0
    report = Report(options.count, options.json)
    with tempfile.TemporaryDirectory(prefix="clonos-mutation-") as name:
        print("all tests once without a mutant", flush=True)
        first: Judge | None = None
        judges: SimpleQueue[Judge] = SimpleQueue()
        for number in range(options.at_once):
            judge = Judge(ROOT, Path(name) / f"copy{number}", options.worlds)
            judge.prepare(first)
            first = first or judge
            judges.put(judge)

        def judge_one(seed: int) -> None:
            path, site = chosen[seed]
            judge = judges.get()
            try:
                verdict = judge.judge(path, site)
            finally:
                judges.put(judge)
            report.add(seed, path, site, sources[path], verdict)

        with ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(judge_one, seeds))
    for mutant in report.survivors:
        print(f"\nseed {mutant['seed']} survived, {mutant['kind']} at {mutant['place']}:\n{mutant['diff']}")
    print(f"\n{len(report.mutants) - len(report.survivors)} of {len(report.mutants)} mutants were caught")
    return 1 if report.survivors else 0


if __name__ == "__main__":
    sys.exit(main())
