"""Picture of one run: throughput, latency, retained logs, and the phases of each recovery."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("svg")

from matplotlib.figure import Figure

from clonos_chaos.scenario.run_record import RunRecord

BIN_MS_MIN: Final = 100
BINS_MAX: Final = 600
PNG_DPI: Final = 80
BARS_MAX: Final = 24
"""With more recoveries than this, each is a dot: time and duration."""

NAMES_MAX: Final = 12
"""With more faults than this, their names are left out."""

MILESTONES: Final = ("detected", "view", "gathered", "replayed", "caught_up")
PHASES: Final = ("until noticed", "until a new view", "log gathered", "replayed", "caught up")
COLOURS: Final = ("#9aa5b1", "#f2a541", "#3f88c5", "#7353ba", "#2a9d6f")
INK, FAINT, FAULT, LINE = "#1f2933", "#cbd2d9", "#d64545", "#1f6feb"
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(record: RunRecord, number: int) -> str:
    """Returns the picture as an ``<svg>`` element; ``number`` makes its ids unique on the page."""
    written = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": f"run {number}"}):
        _figure(record).savefig(written, format="svg")
    return _embedded(written.getvalue(), number)


def write_png(file: Path, record: RunRecord) -> None:
    """Writes the picture to a PNG file, small enough for a document."""
    with matplotlib.rc_context(STYLE):
        _figure(record).savefig(file, format="png", dpi=PNG_DPI)


def _figure(record: RunRecord) -> Figure:
    rows = record.findings.rows if record.findings is not None else []
    first_ns = min([rows[0][0] if rows else record.ended_ns, *(s.at_ns for s in record.injections)])
    start_ns = max(record.began_ns, first_ns - 500_000_000)
    bars = _bars(record, start_ns)
    bin_ms = max(BIN_MS_MIN, (record.ended_ns - start_ns) // 1_000_000 // BINS_MAX)
    heights = [2.2, 2.0, 1.3, 2.0 if len(bars) > BARS_MAX else max(0.9, 0.34 * len(bars) + 0.5)]
    figure = Figure(figsize=(11, sum(heights) + 1.0), layout="constrained")
    axes = figure.subplots(4, 1, sharex=True, gridspec_kw={"height_ratios": heights})
    _throughput(axes[0], rows, start_ns, bin_ms)
    _latency(axes[1], rows, start_ns, bin_ms)
    _retained(axes[2], record, start_ns)
    (_recoveries if len(bars) <= BARS_MAX else _many_recoveries)(axes[3], bars)
    for axis in axes:
        _mark_faults(axis, record, start_ns, names=axis is axes[0] and len(record.injections) <= NAMES_MAX)
        axis.grid(axis="y", color=FAINT, linewidth=0.5)
        axis.set_axisbelow(True)
    axes[3].set_xlabel("seconds")
    axes[0].set_xlim(0, max(0.1, (record.ended_ns - start_ns) / 1e9))
    return figure


def _embedded(svg: str, number: int) -> str:
    """Removes the file header and makes ids unique on the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>r{number}-", svg)
    return re.sub(
        r'<svg [^>]*viewBox="([^"]+)"[^>]*>',
        r'<svg viewBox="\1" role="img" xmlns:xlink="http://www.w3.org/1999/xlink">',
        svg,
        count=1,
    )


def _seconds(at_ns: int, start_ns: int) -> float:
    return (at_ns - start_ns) / 1e9


def _throughput(axis: Any, rows: Sequence[tuple[int, int]], start_ns: int, bin_ms: int) -> None:
    """Plots the records that reached the sinks, in bins."""
    counts: dict[int, int] = {}
    for sink_ns, _ in rows:
        place = (sink_ns - start_ns) // (bin_ms * 1_000_000)
        counts[place] = counts.get(place, 0) + 1
    if counts:
        places = range(min(counts), max(counts) + 2)
        rates = [counts.get(place, 0) * 1000 / bin_ms for place in places]
        axis.step([place * bin_ms / 1000 for place in places], rates, where="post", color=LINE, linewidth=1.3)
        axis.fill_between([place * bin_ms / 1000 for place in places], rates, step="post", color=LINE, alpha=0.12)
    axis.set_ylabel("records/s")
    axis.set_title("Throughput at the sinks", loc="left", fontsize=10, color=INK)
    axis.set_ylim(bottom=0)


def _latency(axis: Any, rows: Sequence[tuple[int, int]], start_ns: int, bin_ms: int) -> None:
    """Plots the time from reading a record until it reached the sinks: median and worst of each bin."""
    bins: dict[int, list[float]] = {}
    for sink_ns, read_ns in rows:
        bins.setdefault((sink_ns - start_ns) // (bin_ms * 1_000_000), []).append((sink_ns - read_ns) / 1e6)
    places = sorted(bins)
    seconds = [(place + 0.5) * bin_ms / 1000 for place in places]
    worst = [max(bins[place]) for place in places]
    median = [sorted(bins[place])[len(bins[place]) // 2] for place in places]
    if places:
        axis.plot(seconds, worst, color="#f2a541", linewidth=1.1, label="worst")
        axis.plot(seconds, median, color=LINE, linewidth=1.4, label="median")
        axis.legend(loc="upper left", frameon=False, ncols=2, fontsize=8.5)
    axis.set_ylabel("ms")
    axis.set_title("Latency from reading to the sinks (windows wait for their end)", loc="left", fontsize=10, color=INK)
    axis.set_ylim(bottom=0)


def _retained(axis: Any, record: RunRecord, start_ns: int) -> None:
    """Plots retained logs, replicas and in-flight data; checkpoints truncate them."""
    samples = [sample for sample in record.samples if sample.at_ns >= start_ns]
    seconds = [_seconds(sample.at_ns, start_ns) for sample in samples]
    axis.plot(seconds, [sample.retained_bytes / 1024 for sample in samples], color="#7353ba", linewidth=1.2)
    completed = [_seconds(b.at_ns, start_ns) for a, b in pairwise(samples) if b.checkpoint > a.checkpoint]
    axis.plot(completed, [0.0] * len(completed), "|", color="#2a9d6f", markersize=9, clip_on=False)
    axis.set_ylabel("KiB retained")
    axis.set_title("Logs and in-flight data of all tasks; green ticks: checkpoints", loc="left", fontsize=10, color=INK)
    axis.set_ylim(bottom=0)


def _bars(record: RunRecord, start_ns: int) -> list[tuple[str, list[float]]]:
    found = []
    for injection, recovery in record.recoveries_by_injection():
        instants = [_seconds(injection.at_ns, start_ns)]
        for milestone in MILESTONES:
            reached = recovery.reached.get(milestone)
            instants.append(instants[-1] if reached is None else max(instants[-1], _seconds(reached, start_ns)))
        found.append((recovery.task, instants))
    return found


def _recoveries(axis: Any, bars: list[tuple[str, list[float]]]) -> None:
    for row, (_, instants) in enumerate(bars):
        for phase, (begun, ended) in enumerate(pairwise(instants)):
            label = PHASES[phase] if not row else None
            axis.barh(row, ended - begun, left=begun, height=0.55, color=COLOURS[phase], label=label)
        axis.text(instants[-1] + 0.02, row, f" {(instants[-1] - instants[0]) * 1000:.0f} ms", va="center", fontsize=8.5)
    axis.set_yticks(range(len(bars)), [task for task, _ in bars])
    axis.set_ylim(len(bars) - 0.4, -0.6)
    if bars:
        axis.legend(loc="lower left", bbox_to_anchor=(0.28, 1.0), frameon=False, ncols=5, fontsize=8, borderpad=0)
        axis.set_title("Recoveries, phase by phase", loc="left", fontsize=10, color=INK)
    else:
        axis.set_title("No task had to recover", loc="left", fontsize=10, color=INK)


def _many_recoveries(axis: Any, bars: list[tuple[str, list[float]]]) -> None:
    times_ms = [(instants[-1] - instants[0]) * 1000 for _, instants in bars]
    axis.plot([instants[0] for _, instants in bars], times_ms, "o", color=COLOURS[4], markersize=3.5, alpha=0.8)
    axis.set_ylabel("ms")
    axis.set_ylim(bottom=0)
    axis.set_title(f"{len(bars)} recoveries, from the fault until caught up", loc="left", fontsize=10, color=INK)


def _mark_faults(axis: Any, record: RunRecord, start_ns: int, names: bool) -> None:
    for number, injection in enumerate(record.injections):
        at = _seconds(injection.at_ns, start_ns)
        if injection.until_ns:
            axis.axvspan(at, _seconds(injection.until_ns, start_ns), color=FAULT, alpha=0.09, linewidth=0)
        width = 1.1 if len(record.injections) <= NAMES_MAX else 0.4
        axis.axvline(at, color=FAULT, linewidth=width, linestyle=(0, (4, 2)))
        if names:
            text = f" {injection.kind} {injection.tasks[0] if len(injection.tasks) == 1 else ''}".rstrip()
            axis.text(
                at,
                1.0 - 0.11 * (number % 4),
                text,
                transform=axis.get_xaxis_transform(),
                color=FAULT,
                fontsize=8.5,
                va="top",
            )
