"""Report of runs as one self-contained HTML page: the verdict, then each run with its picture and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from clonos_chaos.runs.report_plot import draw
from clonos_chaos.scenario.run_record import RunRecord
from clonos_chaos.scenario.scenario_oracle import Findings

STYLE = """
:root { color-scheme: light; --ink: #1f2933; --faint: #e4e7eb; --good: #1d7a4f; --bad: #b42318; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #f5f7fa; margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 24px; }
section { background: #fff; border: 1px solid var(--faint); border-radius: 8px; padding: 18px 22px; margin: 18px 0; }
h1 { font-size: 24px; margin: 8px 0; } h2 { font-size: 18px; margin: 0 0 4px; }
h3 { font-size: 14px; margin: 18px 0 6px; }
p { margin: 4px 0; } .quiet { color: #616e7c; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.tables { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 0 28px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
table.fitting { width: auto; } .fitting td, .fitting th { padding-right: 24px; }
svg { width: 100%; height: auto; margin-top: 10px; }
th, td { text-align: left; padding: 4px 8px 4px 0; border-bottom: 1px solid var(--faint); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font-size: 13px; overflow-wrap: anywhere; }
"""

MEANINGS = (
    ("records", "in the input"),
    ("lost", "missing in a sink, or on one of the two paths"),
    ("duplicated", "in a sink more than once by one path"),
    ("contradicted", "drawn or answered differently in two places, or with an answer that was never given"),
    ("disordered", "out of order within their channel"),
    ("calls", "calls of the service"),
    ("calls_repeated", "repeated calls, because no answer was known when the caller died"),
    ("keys_changed", "repeated under another idempotency key (a new generation has new keys)"),
)
MUST_BE_ZERO = ("lost", "duplicated", "contradicted", "disordered")


def write_report(file: Path, records: Sequence[RunRecord]) -> None:
    """Writes one page for all runs."""
    good = sum(record.is_good for record in records)
    word = _verdict(good == len(records), f"{good} of {len(records)} runs ended as expected")
    overview = _overview(records) if len(records) > 1 else ""
    body = "".join(_run(record, number) for number, record in enumerate(records))
    title = escape(records[0].scenario.name.split(" ")[0]) if records else "nothing"
    file.write_text(
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>chaos: {title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body><main>'
        f"<h1>Failure injection: {title}</h1><p>{word}</p>{overview}{body}</main></body></html>\n",
        "utf-8",
    )


def _verdict(is_good: bool, text: str) -> str:
    return f'<span class="{"good" if is_good else "bad"}">{escape(text)}</span>'


def _overview(records: Sequence[RunRecord]) -> str:
    rows = []
    for number, record in enumerate(records):
        slowest = max(record.recovery_ms().values(), default=None)
        rows.append(
            (
                f'<a href="#run-{number}">{escape(record.scenario.name)}</a>',
                str(record.seed),
                _verdict(record.is_good, "good" if record.is_good else "bad"),
                "" if slowest is None else f"{slowest:.0f}",
            )
        )
    return f"<section>{_table(('run', 'seed', 'verdict', '#slowest recovery, ms'), rows)}</section>"


def _run(record: RunRecord, number: int) -> str:
    scenario = record.scenario
    seconds = (record.ended_ns - record.began_ns) / 1e9
    return (
        f'<section id="run-{number}"><h2>{escape(scenario.name)}</h2>'
        f"<p>{escape(scenario.about)}</p>"
        f'<p class="quiet">job {escape(scenario.job)}, {record.world}, seed {record.seed}, {seconds:.1f} s,'
        f" {record.checkpoints} checkpoints</p>"
        f"<p>{_verdict(record.is_good, 'as expected' if record.is_good else 'NOT as expected')}</p>"
        f"{draw(record, number) if record.samples else ''}"
        f'<div class="tables"><div><h3>Checks</h3>{_checks(record)}</div>'
        f"<div><h3>Findings of the oracle</h3>{_findings(record.findings)}</div></div>"
        f"<h3>Injected faults</h3>{_injections(record)}{_remarks(record)}</section>"
    )


def _checks(record: RunRecord) -> str:
    rows = [
        (escape(c.name), escape(c.wanted), _verdict(c.is_good, c.found) if not c.is_good else escape(c.found))
        for c in record.checks
    ]
    return _table(("check", "wanted", "found"), rows)


def _findings(findings: Findings | None) -> str:
    if findings is None:
        return "<p>No oracle has judged the output.</p>"
    rows = []
    for name, meaning in MEANINGS:
        count = getattr(findings, name)
        shown = _verdict(False, f"{count:,}") if count and name in MUST_BE_ZERO else f"{count:,}"
        rows.append((name.replace("_", " "), shown, meaning))
    return _table(("finding", "#count", "meaning"), rows)


def _injections(record: RunRecord) -> str:
    rows = []
    for injection in record.injections:
        rows.append(
            (
                f"{(injection.at_ns - record.began_ns) / 1e9:.2f}",
                escape(injection.kind),
                escape(", ".join(injection.tasks)),
                escape(injection.detail),
            )
        )
    return _table(("#s after the start", "fault", "tasks", ""), rows, "fitting")


def _remarks(record: RunRecord) -> str:
    remarks = [*record.notes, *(f"alarm: {alarm}" for alarm in record.alarms)]
    if record.findings is not None:
        remarks += [f"{what}: {'; '.join(found)}" for what, found in record.findings.examples.items()]
    lines = "".join(f"<li><code>{escape(remark)}</code></li>" for remark in remarks[:20])
    return f"<h3>Remarks</h3><ul>{lines}</ul>" if lines else ""


def _table(heads: Iterable[str], rows: Iterable[tuple[str, ...]], layout: str = "") -> str:
    """Formats a table of HTML cells. A column whose head begins with # has numbers."""
    names = list(heads)
    is_number = [' class="number"' if name.startswith("#") else "" for name in names]
    head = "".join(f"<th{kind}>{name.lstrip('#')}</th>" for name, kind in zip(names, is_number, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, is_number, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<table class="{layout}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
