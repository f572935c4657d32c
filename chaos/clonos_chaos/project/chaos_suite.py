"""``clonos chaos all``: every shipped scenario in every world that supports it, and a swarm of simulated worlds.

Each run appends a line to ``runs.jsonl`` in the report's folder when it ends, so that ``--resume`` can continue a
stopped suite: runs with a line are not repeated, and worlds continue after the last seed. A run that this machine does
not support is listed with the reason, and counts as neither good nor bad; only a scenario without Toxiproxy is bad.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.io.system.wall_clock import wall_ns
from clonos.spark.java import check_java
from clonos_chaos.real.network_namespaces import HostsRefused
from clonos_chaos.runs.runner import Where, make_writable, run_once
from clonos_chaos.runs.runner_simulated import refusal
from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario import Scenario
from clonos_chaos.scenario.scenario_file import SHIPPED_FOLDER, read_scenarios
from clonos_chaos.swarm.environments import Swarm
from clonos_chaos.swarm.failing_seed import seed_report
from clonos_chaos.swarm.seeds import SwarmResult, swarm

RUNS_FILE: Final = "runs.jsonl"
SUMMARY_FILE: Final = "summary.md"
SEEDS_SHOWN_MAX: Final = 5
"""Failing seeds that are shrunk and reported in full; others are only listed."""

WORLDS_A_LINE: Final = 200
GOOD: Final = "good"
BAD: Final = "bad"
NOT_RUN: Final = "not run"
WORLDS: Final = "worlds"
WRONG: Final = ("lost", "duplicated", "contradicted", "disordered")

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """Options of the command line. ``files``: scenario files by name; empty: all."""

    folder: Path
    worlds: int = 100_000
    first_seed: int = 1
    processes: int = 2
    seed: int = 1
    files: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    in_worlds: tuple[Where, ...] = tuple(Where)
    is_resumed: bool = False


@dataclass(frozen=True, slots=True)
class SuiteTask:
    """One run of the suite. ``file``: name of the scenario file."""

    file: str
    scenario: Scenario
    where: Where
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Returns what identifies the run in a report."""
        return self.scenario.name, self.where, self.seed


def tasks_of(wanted: SuiteOptions) -> list[SuiteTask]:
    """Returns all runs in order: on processes, in the simulated world, on Spark."""
    found = []
    for where in (Where.PROCESSES, Where.SIMULATED, Where.SPARK):
        for path in sorted(SHIPPED_FOLDER.glob("*.toml")):
            is_asked = (not wanted.files or path.stem in wanted.files) and path.stem not in wanted.without
            if is_asked and where in wanted.in_worlds:
                scenarios = (each for each in read_scenarios(path) if _is_of(each, where))
                found += [SuiteTask(path.stem, scenario, where, wanted.seed) for scenario in scenarios]
    return found


def _is_of(scenario: Scenario, where: Where) -> bool:
    is_of_spark = scenario.needs_hosts or "master" in scenario.options
    if where is Where.SIMULATED:
        return not is_of_spark and not refusal(scenario)
    return is_of_spark == (where is Where.SPARK)


def run_chaos_suite(
    wanted: SuiteOptions, on_progress: Callable[[str], None], on_record: Callable[[RunRecord], None]
) -> bool:
    """Runs the suite; returns whether no run was bad. ``on_record`` receives the bad runs."""
    file = wanted.folder / RUNS_FILE
    make_writable(file)
    if file.exists() and not wanted.is_resumed:  # it may have taken hours
        file.replace(file.with_suffix(".before.jsonl"))
    lines = _read(file) if wanted.is_resumed else []
    done = {(line["name"], line["world"], line["seed"]) for line in lines if line["verdict"] != NOT_RUN}
    lines = [line for line in lines if line["verdict"] != NOT_RUN]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (wanted.folder / SUMMARY_FILE).write_text(summary(lines), "utf-8")

    def add(line: Line) -> None:
        lines.append(line)
        with open(file, "a", encoding="utf-8") as report:
            report.write(json.dumps(line) + "\n")
        (wanted.folder / SUMMARY_FILE).write_text(summary(lines), "utf-8")

    tasks = tasks_of(wanted)
    for number, task in enumerate(tasks, 1):
        if task.key in done:
            continue
        line = _run(task, on_record)
        add(line)
        why = f": {line['reason']}" if line["reason"] else ""
        on_progress(
            f"[{number}/{len(tasks)}] {line['verdict']}: {line['name']}, {line['world']}, {line['seconds']} s{why}"
        )
    _run_worlds(wanted, lines, add, on_progress)
    return not any(line["verdict"] == BAD for line in lines)


def _run(task: SuiteTask, on_record: Callable[[RunRecord], None]) -> Line:
    began_ns = wall_ns()
    line: Line = {
        "file": task.file,
        "name": task.scenario.name,
        "world": str(task.where),
        "seed": task.seed,
        "verdict": BAD,
        "seconds": 0.0,
        "wrong": 0,
        "slowest_ms": 0.0,
        "reason": "",
        "notes": [],
        "at": _instant(began_ns),
    }
    try:
        if task.where is Where.SPARK:
            _check_spark()
        record = run_once(task.scenario, task.where, task.seed)
    except (_NoSpark, HostsRefused) as refused:
        line |= {"verdict": NOT_RUN, "reason": str(refused)}
    except ClonosError as error:
        line |= {"reason": f"{type(error).__name__}: {error}"}
    else:
        if not record.is_good:
            on_record(record)
        bad = [f"{check.name}: {check.found} (wanted: {check.wanted})" for check in record.checks if not check.is_good]
        findings = record.findings
        line |= {
            "verdict": GOOD if record.is_good else BAD,
            "reason": "; ".join(bad),
            "wrong": sum(getattr(findings, name) for name in WRONG) if findings is not None else 0,
            "slowest_ms": max(record.recovery_ms().values(), default=0.0),
            "notes": record.notes,
        }
    line["seconds"] = round((wall_ns() - began_ns) / 1e9, 1)
    return line


def _instant(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).isoformat(timespec="seconds")


class _NoSpark(EnvironmentFault):
    """Spark is missing on this machine."""


def _check_spark() -> None:
    if find_spec("pyspark") is None:
        raise _NoSpark("not run: it needs Spark, and pyspark is not installed")
    try:
        check_java()
    except EnvironmentFault as fault:
        raise _NoSpark(f"not run: it needs Spark, which needs Java ({fault})") from fault


def _run_worlds(
    wanted: SuiteOptions, lines: list[Line], add: Callable[[Line], None], on_progress: Callable[[str], None]
) -> None:
    """Runs the worlds; writes a line per portion, so that a stopped suite continues after it."""
    kind = Swarm("", is_mixed=True)
    known = [line for line in lines if line["file"] == WORLDS]
    first = max((line["last"] + 1 for line in known), default=wanted.first_seed)
    shown = sum(len(line["failed"]) for line in known)
    seed, last = first, wanted.first_seed + wanted.worlds
    portion, began_ns = SwarmResult(), wall_ns()
    for result in swarm(range(first, last), kind, wanted.processes):
        portion.add(result)
        for failed, report in result.failures:
            shown += 1
            what = seed_report(failed, kind, report) if shown <= SEEDS_SHOWN_MAX else ""
            on_progress(f"FAILED: {what or f'clonos chaos seeds {kind.arguments(failed)}'}")
        if portion.worlds >= WORLDS_A_LINE or seed + portion.worlds == last:
            add(_line_of(portion, seed, began_ns))
            seed += portion.worlds
            rate = 1e9 * (seed - first) / (wall_ns() - began_ns)
            on_progress(f"[{seed - wanted.first_seed}/{wanted.worlds} worlds] {portion.line()}, {rate:.1f} worlds/s")
            portion = SwarmResult()


def _line_of(result: SwarmResult, first: int, began_ns: int) -> Line:
    return {
        "at": _instant(began_ns),
        "file": WORLDS,
        "name": f"seeds from {first}",
        "world": str(Where.SIMULATED),
        "seed": first,
        "verdict": BAD if result.failures else GOOD,
        "seconds": 0.0,
        "wrong": 0,
        "slowest_ms": 0.0,
        "notes": [],
        "reason": ", ".join(f"seed {seed}" for seed, _ in result.failures),
        "worlds": result.worlds,
        "last": first + result.worlds - 1,
        "failed": [seed for seed, _ in result.failures],
        "reached": dict(result.reached),
    }


def _read(file: Path) -> list[Line]:
    """Reads the lines of a stopped suite, without an incomplete last line."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]


def _time(time_ms: float) -> str:
    return f"{time_ms / 1000:.2f} s" if time_ms else ""


def summary(lines: Sequence[Mapping[str, Any]]) -> str:
    """Formats the table of a report as Markdown."""
    return "\n".join(_table(lines)) + "\n"


def _table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "| scenario | world | runs | good | bad | not run | wrong | slowest recovery |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    groups = dict.fromkeys((line["file"], line["world"]) for line in lines if line["file"] != WORLDS)
    for file, world in groups:
        own = [line for line in lines if (line["file"], line["world"]) == (file, world)]
        counts = [sum(line["verdict"] == verdict for line in own) for verdict in (GOOD, BAD, NOT_RUN)]
        slowest, wrong = max(line["slowest_ms"] for line in own), sum(line["wrong"] for line in own)
        numbers = " | ".join(str(count) for count in (len(own), *counts, wrong))
        yield f"| `{file}` | {world} | {numbers} | {_time(slowest)} |"
    worlds = [line for line in lines if line["file"] == WORLDS]
    if worlds:
        count, failed = sum(line["worlds"] for line in worlds), sum(len(line["failed"]) for line in worlds)
        seeds = f"seeds {worlds[0]['seed']} to {worlds[-1]['last']}"
        yield f"| {seeds} | simulated | {count} | {count - failed} | {failed} | 0 | | |"
    yield ""
    times = sorted(line["at"] for line in lines if "at" in line)
    if times:
        yield f"Runs of {times[0]} to {times[-1]}."
    for line in lines:
        if line["verdict"] != GOOD:
            yield f"- {line['verdict']}: {line['name']}, {line['world']}: {line['reason']}"
        for note in line["notes"] if line["file"] == "calls-in-doubt" else ():
            yield f"- {line['name']}: {note}"
