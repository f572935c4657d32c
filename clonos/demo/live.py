"""Live display of the demo: tasks, throughput and kills; plain lines if there is no terminal."""

from __future__ import annotations

import time
from collections import deque
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clonos.core.model.ids import view_name
from clonos.core.model.progress import SETTLED_PHASES, TaskCounter
from clonos.demo.kills import step_of
from clonos.demo.wordcount import ASK
from clonos.status import Status

RATE_SPAN_S: Final = 2.0
LINE_EVERY_S: Final = 5.0
REFRESHES_PER_S: Final = 4


class Display:
    """Display of the latest status and of events."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=REFRESHES_PER_S) if console.is_terminal else None
        self._seen: deque[tuple[float, int]] = deque()
        self._total = 0
        self._known: dict[tuple[str, int], int] = {}
        self._line_due_s = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show_event(self, event: str) -> None:
        """Prints an event above the display."""
        self._console.print(Text(f"{time.strftime('%H:%M:%S')} {event}"))

    def show(self, status: Status) -> None:
        """Shows a status."""
        rate = self._rate(status)
        if self._live is not None:
            self._live.update(Group(self._headline(status, rate), _tasks(status)))
        elif time.monotonic() >= self._line_due_s:
            self._line_due_s = time.monotonic() + LINE_EVERY_S
            self._console.print(self._headline(status, rate))

    def _rate(self, status: Status) -> float:
        """Returns the words looked up per second.

        Counters restart with each incarnation, so only growth within one counts.
        """
        now_s = time.monotonic()
        for task in (task for task in status.tasks if step_of(task.name) == ASK):
            records = task.counters.get(TaskCounter.RECORDS_IN, 0)
            known = self._known.get((task.name, task.incarnation), records)
            self._total += max(0, records - known)
            self._known[task.name, task.incarnation] = max(records, known)
        self._seen.append((now_s, self._total))
        while self._seen[0][0] < now_s - RATE_SPAN_S and len(self._seen) > 1:
            self._seen.popleft()
        (then_s, then), (until_s, until) = self._seen[0], self._seen[-1]
        return (until - then) / (until_s - then_s) if until_s > then_s else 0.0

    def _headline(self, status: Status, rate: float) -> Text:
        return Text(
            f"{status.phase}: {rate:,.0f} records/s, epoch {status.checkpoint},"
            f" generation {status.generation}, view {view_name(status.view)}, {len(status.slots)} slots"
        )


def _tasks(status: Status) -> Table:
    table = Table()
    for name in ("task", "phase", "incarnation", "pid", "executor", "records in", "standbys"):
        table.add_column(name, justify="right" if name in ("incarnation", "pid", "records in", "standbys") else "left")
    for task in status.tasks:
        style = "" if task.phase in SETTLED_PHASES else "yellow"
        records = f"{task.counters.get(TaskCounter.RECORDS_IN, 0):,}"
        table.add_row(
            task.name,
            task.phase,
            view_name(task.incarnation),
            str(task.pid),
            task.domain,
            records,
            f"{task.standbys} hot" if task.hot_standbys else str(task.standbys),
            style=style,
        )
    return table
