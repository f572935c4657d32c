"""Run of a job on a terminal: what is being started, the live table, and the summary.

The table comes after a quarter of a second, because its library takes long to import and the first row must not wait.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from clonos.cli.log_lines import JSON_LINES, is_json, report
from clonos.config import RunOptions, SlotKind, resolve_settings
from clonos.job.description import Job, options_of
from clonos.job.results import Result, not_begun

if TYPE_CHECKING:
    from clonos.job.handle import Handle
    from clonos.job.live_table import LiveTable

LOOK_EVERY_S: Final = 0.25
START_SHOWN_AFTER_S: Final = 1.0
LINE_WIDTH: Final = 160
"""Width of lines in characters if there is no terminal."""


def run_on_console(
    job: Job, command_line: Mapping[str, object], has_page: bool = False, page_port: int | None = None
) -> Result:
    """Runs a job to its end, with a live table on a terminal, else with a line every few seconds; with a page if
    ``has_page``."""
    run = resolve_settings(options_of(job), command_line).run
    JSON_LINES.job = job.name
    with ExitStack() as stack:
        serve = stack.enter_context(_page(page_port)) if has_page else None
        with _saying_if_interrupted(job.name), shown_start(run):
            handle = job.start(command_line=command_line)
        with handle, handle.handling_signals():
            if serve is not None:
                report(f"the page of {job.name}: {serve(handle)}")
            result = watch(handle)
            summary = handle.summary()
    for line in (result.summary(), *summary):
        report(line)
    return result


def _page(port: int | None) -> AbstractContextManager[Callable[[Handle], str]]:
    from clonos.server.job_page import job_page

    return job_page(port)


@contextmanager
def _saying_if_interrupted(name: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        report(not_begun(name))
        raise


def watch(handle: Handle, has_to_stop: Callable[[], bool] = lambda: False) -> Result:
    """Shows a job until it ends. ``has_to_stop``: whether to abort it."""
    table: LiveTable | None = None
    with ExitStack() as stack:
        while True:
            try:
                return handle.wait(LOOK_EVERY_S)
            except TimeoutError:
                pass
            if not is_json():
                table = table or stack.enter_context(_new_table())
                table.show(handle.status(), handle.steps_with_sinks(), handle.keyed_steps())
            if has_to_stop():
                handle.stop(drain=False)


def _new_table() -> LiveTable:
    """Creates a table on standard error, for everything that is no output of the job."""
    from rich.console import Console

    from clonos.job.live_table import LiveTable

    is_terminal = sys.stderr.isatty()
    return LiveTable(Console(stderr=True, width=None if is_terminal else LINE_WIDTH, soft_wrap=not is_terminal))


@contextmanager
def shown_start(run: RunOptions) -> Iterator[None]:
    """Shows for how long the start has taken, from its first second on."""
    what = "Spark" if run.slots is SlotKind.SPARK else "processes"
    began_s, is_over = time.monotonic(), threading.Event()

    def show() -> None:
        if is_over.wait(START_SHOWN_AFTER_S) or is_json():
            return
        with _new_table() as table:
            while not is_over.wait(LOOK_EVERY_S):
                table.show_start(what, time.monotonic() - began_s)

    thread = threading.Thread(target=show, name="start display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
