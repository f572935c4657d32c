"""Live table of a running job: tasks, rates, lag, busy share and recoveries; plain lines if there is no terminal.

Everything that is printed or logged meanwhile appears above the table, because the table redirects the streams of the
terminal that it is on.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clonos.core.model.progress import SETTLED_PHASES, TaskCounter
from clonos.io.system.shown_progress import SHOWN_AFTER_NS, Progress, WorkUnit
from clonos.io.system.wall_clock import monotonic_ns
from clonos.job.skew import hot_tasks
from clonos.status import Rate, Status, TaskState, late_by_step, late_text, phase_text

LINE_EVERY_S: Final = 5.0
REFRESHES_PER_S: Final = 4
COLUMNS: Final = ("task", "process", "in/s", "out/s", "lag", "busy", "state", "standbys", "last recovery")
LEFT: Final = frozenset({"task", "process", "state", "last recovery"})


class LiveTable:
    """Display of the latest status and of events."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        if console.is_terminal:
            is_shared = sys.stdout.isatty()  # else standard output goes to a file, where it must stay
            self._live = Live(
                console=console, refresh_per_second=REFRESHES_PER_S, redirect_stdout=is_shared, transient=True
            )
        self._rates: dict[tuple[str, str], Rate] = {}
        self._checkpoint, self._checkpoint_s = 0, time.monotonic()
        self._line_due_s = time.monotonic() + LINE_EVERY_S
        self._restoring: dict[str, Progress] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show_event(self, event: str) -> None:
        """Prints an event above the table."""
        self._console.print(Text(f"{time.strftime('%H:%M:%S')} {event}"))

    def show_start(self, what: str, seconds: float) -> None:
        """Shows what is being started, and for how long."""
        if self._live is not None:
            self._live.update(Text(f"starting {what}: {seconds:.0f} s"))

    def show(self, status: Status, sinks: frozenset[str] = frozenset(), keyed: frozenset[str] = frozenset()) -> None:
        """Shows a status.

        ``sinks``: the steps that write to a sink, whose output is not counted. ``keyed``: those that share records by
        key, whose skew is shown.
        """
        now_s = time.monotonic()
        for task in status.tasks:
            for counter in (TaskCounter.RECORDS_IN, TaskCounter.RECORDS_OUT, TaskCounter.BUSY_US):
                rate = self._rates.setdefault((task.name, counter), Rate())
                rate.add(task.incarnation, task.counters.get(counter), now_s)
            self._note_restoring(task)
        if status.checkpoint != self._checkpoint:
            self._checkpoint, self._checkpoint_s = status.checkpoint, now_s
        if self._live is not None:
            self._live.update(Group(self._headline(status, keyed), self._table(status, sinks)))
        elif now_s >= self._line_due_s:
            self._line_due_s = now_s + LINE_EVERY_S
            self._console.print(self._headline(status, keyed))

    def _headline(self, status: Status, keyed: frozenset[str]) -> Text:
        first = next(iter(status.tasks), None)
        sources = {first.name.rpartition("/")[0]} if first is not None else set()
        total = sum(
            self._rate(task, TaskCounter.RECORDS_IN) for task in status.tasks if task.name.rpartition("/")[0] in sources
        )
        age = f"{time.monotonic() - self._checkpoint_s:.0f} s ago" if status.checkpoint else "none yet"
        recoveries = f", recoveries: {len(status.recoveries)}" if status.recoveries else ""
        waiting = [self._waiting(task) for task in status.tasks if task.phase not in SETTLED_PHASES]
        not_live = f"; not live: {', '.join(waiting)}" if waiting and status.phase == "running" else ""
        hot = hot_tasks(status.tasks, keyed, partial(self._rate, counter=TaskCounter.RECORDS_IN), self._busy_share)
        skew = f"; {', '.join(hot)}" if hot else ""
        late = late_by_step(status.tasks)
        refused = f"; late records: {late_text(late)}" if late else ""
        return Text(
            f"{status.job} {status.phase}: {total:,.0f} records/s, checkpoint {status.checkpoint} ({age}),"
            f" {len(status.slots)} processes{recoveries}{not_live}{refused}{skew}"
        )

    def _note_restoring(self, task: TaskState) -> None:
        permille = task.counters.get(TaskCounter.RESTORED_PERMILLE)
        if permille is None:
            self._restoring.pop(task.name, None)
            return
        what = f"{task.name} restores its state"
        self._restoring.setdefault(task.name, Progress(what, 1_000, WorkUnit.SHARE, monotonic_ns)).reach(permille)

    def _waiting(self, task: TaskState) -> str:
        """Returns the name of a task that is not live, with how much of its state it has read if it reads that."""
        progress = self._restoring.get(task.name)
        return task.name if progress is None or progress.elapsed_ns < SHOWN_AFTER_NS else progress.text()

    def _rate(self, task: TaskState, counter: TaskCounter) -> float:
        return self._rates[task.name, counter].per_second()

    def _busy_share(self, task: TaskState) -> float:
        return min(1.0, self._rate(task, TaskCounter.BUSY_US) / 1e6)

    def _table(self, status: Status, sinks: frozenset[str]) -> Table:
        table = Table()
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=name == "task")
        recovered = {each.task: each for each in status.recoveries}
        for task in status.tasks:
            lag = task.counters.get(TaskCounter.BACKLOG_ELEMENTS, task.counters.get(TaskCounter.BACKLOG_BYTES))
            recovery = recovered.get(task.name)
            duration_ns = None if recovery is None else recovery.duration_ns
            table.add_row(
                task.name,
                f"{task.pid} {task.domain}" if task.pid else "",
                f"{self._rate(task, TaskCounter.RECORDS_IN):,.0f}",
                "" if task.name.rpartition("/")[0] in sinks else f"{self._rate(task, TaskCounter.RECORDS_OUT):,.0f}",
                "" if lag is None else f"{lag:,}",
                f"{self._busy_share(task):.0%}",
                phase_text(task.phase, task.counters),
                f"{task.standbys} hot" if task.hot_standbys else str(task.standbys),
                "" if recovery is None else "..." if duration_ns is None else f"{duration_ns / 1e6:,.0f} ms",
                style="" if task.phase in SETTLED_PHASES else "yellow",
            )
        return table
