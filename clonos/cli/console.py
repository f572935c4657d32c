"""Run of a job on a terminal: what is being started, the live table, and the summary."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from rich.console import Console

from clonos.config import RunOptions, SlotKind, resolve_settings
from clonos.job.description import Job, options_of
from clonos.job.handle import Handle
from clonos.job.live_table import LiveTable
from clonos.job.results import Result, not_begun
from clonos_standby.driver.printed_lines import StandardErrorHandler

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOOK_EVERY_S: Final = 0.25
LINE_WIDTH: Final = 160
"""Width of lines in characters if there is no terminal."""


def log_to_console(is_verbose: bool) -> None:
    """Lets log lines appear on the standard error of the moment, which a live table may have replaced."""
    handler = StandardErrorHandler()
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("clonos").setLevel(logging.INFO if is_verbose else logging.WARNING)


def new_console() -> Console:
    """Returns the console for everything that is no output of the job."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else LINE_WIDTH, soft_wrap=not sys.stderr.isatty())


def run_on_console(job: Job, command_line: Mapping[str, object]) -> Result:
    """Runs a job to its end, with a live table on a terminal, else with a line every few seconds."""
    run = resolve_settings(options_of(job), command_line).run
    console = new_console()
    with LiveTable(console) as table:
        with _saying_if_interrupted(job.name), shown_start(table, run):
            handle = job.start(command_line=command_line)
        with handle, handle.handling_signals():
            result = watch(handle, table)
            summary = handle.summary()
    for line in (result.summary(), *summary):
        print(line, file=sys.stderr)
    return result


@contextmanager
def _saying_if_interrupted(name: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print(not_begun(name), file=sys.stderr)
        raise


def watch(handle: Handle, table: LiveTable, has_to_stop: Callable[[], bool] = lambda: False) -> Result:
    """Shows a job until it ends. ``has_to_stop``: whether to abort it."""
    while True:
        try:
            return handle.wait(LOOK_EVERY_S)
        except TimeoutError:
            table.show(handle.status(), handle.steps_with_sinks(), handle.keyed_steps())
        if has_to_stop():
            handle.stop(drain=False)


@contextmanager
def shown_start(table: LiveTable, run: RunOptions) -> Iterator[None]:
    """Shows for how long the start has taken, until the table has a status."""
    what = "Spark" if run.slots is SlotKind.SPARK else "processes"
    began_s, is_over = time.monotonic(), threading.Event()

    def show() -> None:
        while not is_over.wait(LOOK_EVERY_S):
            table.show_start(what, time.monotonic() - began_s)

    thread = threading.Thread(target=show, name="start display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
