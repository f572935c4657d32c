"""Tables of a server's jobs and tasks on a terminal, or as plain text."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from clonos.core.model.ids import view_name
from clonos.status import phase_text

WIDTH: Final = 100_000
"""Width in characters if there is no terminal: each row is one line, for grep and awk."""


def show(*parts: RenderableType) -> None:
    """Prints tables and lines on standard output."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str), markup=False)


def jobs_table(jobs: Sequence[dict[str, Any]]) -> Table:
    """Returns a table of jobs, a line for each: of an error as much as fits."""
    table = _table("job", "status", "started", "ended", "recoveries", "restarts", "checkpoint", "error")
    for job in jobs:
        status = f"{job['status']} (stopped)" if job["stopped"] else job["status"]
        times = (_seconds(job["started_at"]), _seconds(job["ended_at"]))
        cells = (job["id"], status, *times, job["recoveries"], job["restarts"], job["checkpoint"])
        error = (job["error"] or "").partition("\n")[0]
        table.add_row(*map(_value, cells), Text(error, no_wrap=True, overflow="ellipsis"))
    return table


def _seconds(at: str | None) -> str:
    """Returns a time of ISO 8601 without its fraction of a second."""
    return f"{at.partition('.')[0]}Z" if at else ""


def tasks_table(tasks: Sequence[dict[str, Any]]) -> Table:
    """Returns a table of tasks."""
    table = _table("task", "phase", "pid", "host", "in/s", "out/s", "busy", "standbys", "keepers", "incarnation")
    for task in tasks:
        rates = task["rates"]
        cells = (
            *(task["name"], phase_text(task["phase"], task["counters"]), task["pid"] or "", task["host"]),
            *(f"{rates['records_in_per_s']:,.0f}", f"{rates['records_out_per_s']:,.0f}", f"{rates['busy_ratio']:.0%}"),
            *(task["standbys"], task["keepers"], view_name(task["incarnation"])),
        )
        table.add_row(*map(_value, cells))
    return table


def status_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yields the error, the last recoveries, savepoints and changes of widths under way, advice, skew and the last
    alarms."""
    if error := document["job"]["error"]:
        yield f"error: {error}"
    for recovery in document["recoveries"][:3]:
        took = "is under way" if recovery["duration_ms"] is None else f"{recovery['duration_ms']:.0f} ms"
        yield f"recovery of {recovery['task']}: {recovery['cause']}, {took}"
    for savepoint in document["savepoints"]:
        yield savepoint["text"]
    if (rescale := document["rescale"]) is not None and rescale["phase"] != "done":
        yield f"change of widths or places: {rescale['text']}"
    for advice in document["scaling"]:
        yield f"width of {advice['step']}: {advice['text']}"
    for skew in document["skew"]:
        yield f"skew: {skew}"
    for alarm in document["alarms"][-3:]:
        yield f"alarm: {alarm['text']} {alarm['advice']}"


def rows_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Returns a table of texts."""
    table = _table(*columns)
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("job", "status"))
    return table


def _value(value: object) -> Text:
    """Returns a cell that is never empty, so that each line has as many words as columns."""
    return _cell("-" if value is None or value == "" else value)


def _cell(value: object) -> Text:
    return Text(str(value))  # in which brackets are no markup
