"""``clonos chaos``: scenarios (``run``) and swarms of simulated worlds (``seeds``). Each answers an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from clonos_chaos.runner import Where, Wishes, run_scenarios
from clonos_chaos.runner_record import Record
from clonos_chaos.scenario_file import SHIPPED_FOLDER, find_scenario, read_scenarios

GOOD = 0
BAD = 1


def run(arguments: Sequence[str]) -> int:
    """``clonos chaos run SCENARIO``: 0 when every run came to what its scenario expects, else 1."""
    parser = argparse.ArgumentParser(prog="clonos chaos run", description=f"Scenarios are in {SHIPPED_FOLDER}.")
    parser.add_argument("scenario", metavar="SCENARIO", help="a file, or the name of a shipped one")
    world = parser.add_mutually_exclusive_group()
    for where, told in (
        (Where.PROCESSES, "on real processes, no JVM (default)"),
        (Where.SPARK, "on Spark executors"),
        (Where.SIMULATED, "in the simulated world"),
    ):
        world.add_argument(f"--{where}", dest="where", action="store_const", const=where, help=told)
    parser.add_argument("--seed", type=int, default=1, help="chooses the victims (default: 1)")
    parser.add_argument("--repeat", type=int, default=1, metavar="K", help="so often, each with the next seed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was found to this file")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a report with pictures to this file")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave outputs and logs in this folder")
    parsed = parser.parse_args(arguments)
    scenarios = read_scenarios(find_scenario(parsed.scenario))
    where = parsed.where or Where.PROCESSES
    wishes = Wishes(where, parsed.seed, parsed.repeat, parsed.json, parsed.html, parsed.keep)
    return GOOD if run_scenarios(scenarios, wishes, _tell) else BAD


def seeds(arguments: Sequence[str]) -> int:
    """``clonos chaos seeds``: 1 when some world failed."""
    from clonos_chaos.seeds import run as run_seeds
    from clonos_chaos.world import TOPOLOGIES

    parser = argparse.ArgumentParser(prog="clonos chaos seeds")
    parser.add_argument("--from", dest="first", type=lambda text: int(text, 0), default=0, metavar="A")
    parser.add_argument("--to", dest="last", type=lambda text: int(text, 0), default=999, metavar="B")
    parser.add_argument("--topology", choices=TOPOLOGIES, default="", help="default: each in turn")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parsed = parser.parse_args(arguments)
    return run_seeds(parsed.first, parsed.last, parsed.topology, parsed.processes)


def _tell(record: Record) -> None:
    seconds = (record.ended_ns - record.began_ns) / 1e9
    word = "good" if record.is_good else "BAD"
    print(f"{word}: {record.scenario.name}, seed {record.seed}, {record.world}, {seconds:.1f} s")
    for strike in record.strikes:
        at_s = (strike.at_ns - record.began_ns) / 1e9
        print(f"  {at_s:6.2f} s  {strike.kind} {', '.join(strike.tasks)} {strike.detail}".rstrip())
    for check in record.checks:
        print(f"  {'ok ' if check.is_good else 'BAD'} {check.name}: {check.found} (wanted: {check.wanted})")
    if record.findings is not None:
        for what, examples in record.findings.examples.items():
            print(f"  {what}, for example: {'; '.join(examples)}")
    sys.stdout.flush()
