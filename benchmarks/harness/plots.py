"""Plots of results into benchmarks/results/. matplotlib comes with the extra ``bench``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def histogram(file: Path, series: Mapping[str, Sequence[float]], title: str) -> None:
    """Plots a histogram on a logarithmic axis."""
    figure, axes = _new(title)
    highest = max(max(values) for values in series.values())
    lowest = max(1e-3, min(min(values) for values in series.values()))
    steps = [lowest * (highest / lowest) ** (step / 80) for step in range(81)]
    for name, values in series.items():
        axes.hist(values, bins=steps, histtype="step", label=name, weights=[1 / len(values)] * len(values))
    axes.set_xscale("log")
    axes.set_ylabel("share of the records")
    _finish(figure, axes)
    _save(figure, file)


def lines(
    file: Path,
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    labels: tuple[str, str],
    is_logarithmic: bool = False,
    instants: Sequence[float] = (),
) -> None:
    """Plots curves of (x, y); vertical lines mark ``instants``."""
    _save(drawn(series, title, labels, is_logarithmic, instants), file)


def drawn(
    series: Mapping[str, Sequence[tuple[float, float]]],
    title: str,
    labels: tuple[str, str],
    is_logarithmic: bool = False,
    instants: Sequence[float] = (),
) -> Any:
    """Returns curves as a figure."""
    figure, axes = _new(title)
    for name, points in series.items():
        axes.plot(*zip(*points, strict=True), label=name, marker="o" if is_logarithmic else "", linewidth=1)
    for instant in instants:
        axes.axvline(instant, color="red", linewidth=0.6)
    if is_logarithmic:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    _finish(figure, axes)
    return figure


def _new(title: str) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(9, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def _finish(figure: Any, axes: Any) -> None:
    """Adds a legend beside the axes, where it covers no curve."""
    figure.legend(loc="outside right upper", fontsize="small")
    axes.grid(visible=True, alpha=0.3)


def _save(figure: Any, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
