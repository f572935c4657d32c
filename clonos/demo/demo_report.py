"""Report of the demo: the timeline of each recovery and the verdict, as tables and as JSON."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clonos.demo.demo_verdict import DemoVerdict, Row, silence_ms
from clonos.demo.kills import Kill, step_of
from clonos.demo.wordcount import COUNT
from clonos.status import RecoveryState

MILESTONES = ("detected", "view", "gathered", "replayed", "caught_up")


@dataclass(frozen=True, slots=True)
class KillReport:
    """One killed task, with the milestones of its recovery in ms after the kill; None if not reached or not measurable.

    ``output_gap_ms`` is the longest gap at the input of its sink that overlaps the recovery; windows alone cause gaps
    of their length. ``visible_gap_ms`` is the same for committed rows, which appear once per checkpoint.
    """

    task: str
    kind: str
    detected_ms: float | None
    promoted_ms: float | None
    replayed_ms: float | None
    caught_up_ms: float | None
    output_gap_ms: float | None
    visible_gap_ms: float | None


@dataclass(frozen=True, slots=True)
class DemoOutputs:
    """Times of the committed rows: their arrival at the sink, by (sink, index of the task), and their commits."""

    arrivals_ns: dict[tuple[str, str], list[int]]
    commits_ns: list[int]

    @classmethod
    def of(cls, counts: Iterable[Row], rejected: Iterable[Row]) -> DemoOutputs:
        """Collects the times from the rows of each sink."""
        arrivals: dict[tuple[str, str], list[int]] = defaultdict(list)
        commits: set[int] = set()
        for sink, rows in (("counts", counts), ("rejected", rejected)):
            for row in rows:
                arrivals[sink, row.task.rpartition("/")[2]].append(row.record["at_ns"])
                commits.add(row.commit_ns)
        return cls(dict(arrivals), sorted(commits))

    def arrivals_of(self, task: str) -> list[int]:
        """Returns the arrival times of a task's rows: at the sink ``counts`` if it counts, else at ``rejected``."""
        sink = "counts" if step_of(task) == COUNT else "rejected"
        return self.arrivals_ns.get((sink, task.rpartition("/")[2]), [])


def kill_reports(kills: Sequence[Kill], recoveries: Sequence[RecoveryState], outputs: DemoOutputs) -> list[KillReport]:
    """Joins each kill with the recovery that followed it."""
    by_victim = {(one.task, one.failed_incarnation): one for one in recoveries}
    return [_report(kill, by_victim.get((kill.task, kill.incarnation)), outputs) for kill in kills]


def _report(kill: Kill, recovery: RecoveryState | None, outputs: DemoOutputs) -> KillReport:
    reached = recovery.reached if recovery is not None else {}
    after_ms = {name: round((at_ns - kill.at_ns) / 1e6, 1) for name, at_ns in reached.items()}
    until_ns = reached.get("caught_up", kill.at_ns)
    output_gap = silence_ms(outputs.arrivals_of(kill.task), kill.at_ns, until_ns)
    visible_gap = silence_ms(outputs.commits_ns, kill.at_ns, until_ns)
    return KillReport(
        kill.task,
        kill.kind,
        after_ms.get("detected"),
        after_ms.get("view"),
        after_ms.get("replayed"),
        after_ms.get("caught_up"),
        None if output_gap is None else round(output_gap, 1),
        None if visible_gap is None else round(visible_gap, 1),
    )


def write_json(file: Path, verdict: DemoVerdict, kills: Sequence[KillReport]) -> None:
    """Writes the verdict and the kills as JSON."""
    counted = ("records", "lost", "duplicated", "contradicted", "calls_repeated")
    data = {name: getattr(verdict, name) for name in counted} | {"kills": [asdict(kill) for kill in kills]}
    file.write_text(json.dumps(data, indent=2) + "\n", "utf-8")


def show_timeline(console: Console, kills: Sequence[Kill], recoveries: Sequence[RecoveryState]) -> None:
    """Prints the milestones of each killed task's recovery, in ms after the kill."""
    by_victim = {(one.task, one.failed_incarnation): one for one in recoveries}
    table = Table(title="Recoveries: ms after the kill", title_justify="left")
    for name in ("kill", "task", "detected", "view", "log gathered", "replayed", "caught up"):
        table.add_column(name, justify="left" if name in ("kill", "task") else "right")
    for kill in kills:
        recovery = by_victim.get((kill.task, kill.incarnation))
        reached = recovery.reached if recovery is not None else {}
        cells = [f"{(reached[name] - kill.at_ns) / 1e6:.1f}" if name in reached else "-" for name in MILESTONES]
        table.add_row(kill.kind, kill.task, *cells)
    console.print(table)


def show_gaps(console: Console, kills: Sequence[KillReport]) -> None:
    """Prints the output gaps of each kill."""
    table = Table(title="Gap in the output of the killed task, ms", title_justify="left")
    for name in ("kill", "task", "at the sink's input", "in committed output"):
        table.add_column(name, justify="left" if name in ("kill", "task") else "right")
    for kill in kills:
        gaps = ["-" if gap is None else f"{gap:.1f}" for gap in (kill.output_gap_ms, kill.visible_gap_ms)]
        table.add_row(kill.kind, kill.task, *gaps)
    console.print(table)
    console.print(
        "Without any kill, windows emit once a second and output becomes visible once per checkpoint.", style="dim"
    )


def show_verdict(console: Console, verdict: DemoVerdict, disturbed: Sequence[str], healthy: int) -> None:
    """Prints the verdict."""
    table = Table(title="Verdict of an independent reader of the output and of the server's log", title_justify="left")
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("meaning")
    rows = (
        ("records", verdict.records, "words of the input"),
        ("lost", verdict.lost, "in neither output"),
        ("duplicated", verdict.duplicated, "twice in one output"),
        ("contradicted", verdict.contradicted, "in both outputs, or contrary to every answer of the server"),
        ("calls repeated", verdict.calls_repeated, "repeated because the task died before an answer was recorded"),
    )
    for name, count, meaning in rows:
        is_wrong = count and name in ("lost", "duplicated", "contradicted")
        table.add_row(name, Text(f"{count:,}", style="bold red" if is_wrong else ""), meaning)
    console.print(table)
    for kind, names in verdict.examples.items():
        console.print(f"{kind}, for example: {', '.join(names)}", style="red")
    if disturbed:
        console.print(f"Healthy tasks that were disturbed: {', '.join(disturbed)}", style="red")
    elif healthy:
        console.print(f"Healthy tasks kept their pids and incarnations in each of {healthy} kills.", style="green")
    text = "exactly-once: nothing lost, duplicated or contradicted" if verdict.is_clean else "NOT exactly-once"
    console.print(text, style="bold green" if verdict.is_clean else "bold red")
