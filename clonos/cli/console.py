"""Run of a job on a terminal: what is being started, the live table, and the summary.

The table comes after a quarter of a second, because its library takes long to import and the first row must not wait.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from clonos.cli.log_lines import JSON_LINES, is_json, report
from clonos.config import RunOptions, SlotKind, resolve_settings
from clonos.core.model.errors import ClonosError, short_report
from clonos.io.system.closed_pipes import discard
from clonos.job.continuing.restart_strategy import NoRestart, RestartStrategy
from clonos.job.continuing.restarting import run_to_its_end
from clonos.job.description import Job, options_of
from clonos.job.results import Result, not_begun

if TYPE_CHECKING:
    from clonos.job.handle import Handle
    from clonos.job.live_table import LiveTable
    from clonos.job.run_documents import RunLog

LOOK_EVERY_S: Final = 0.25
START_SHOWN_AFTER_S: Final = 1.0
NO_RESTART: Final = NoRestart()
WHERE: Final = {SlotKind.SPARK: "on Spark", SlotKind.PROCESS: "in child processes", SlotKind.THREAD: "in threads"}
LINE_WIDTH: Final = 160
"""Width of lines in characters if there is no terminal."""


def run_on_console(
    job: Job,
    command_line: Mapping[str, object],
    has_page: bool = False,
    page_port: int | None = None,
    strategy: RestartStrategy = NO_RESTART,
) -> Result:
    """Runs a job to its end, with a live table on a terminal, else with a line every few seconds; with a page if
    ``has_page``. If its environment fails after it has begun, it is started again as ``strategy`` says, from its last
    checkpoint."""
    JSON_LINES.job = job.name
    run = ConsoleRun(job, has_page, page_port, keeps_page_of_failure=isinstance(strategy, NoRestart))
    return run_to_its_end(job.name, run, command_line, strategy, report)


class ConsoleRun:
    """Attempts to run one job. ``checkpoint``: number of the last completed checkpoint as far as is known.

    A page stays after the end of the job until an interrupt, unless somebody has asked for the end.
    ``keeps_page_of_failure``: that of a failed job too, which no further attempt follows.
    """

    def __init__(self, job: Job, has_page: bool, page_port: int | None, *, keeps_page_of_failure: bool = False) -> None:
        self._job, self._has_page, self._page_port = job, has_page, page_port
        self._keeps_page_of_failure = keeps_page_of_failure
        self.checkpoint = 0
        self.handle: Handle | None = None
        self._was_tried = False

    def attempt(self, command_line: Mapping[str, object]) -> Result:
        """Runs the job to its end. Raises: see ``Handle.wait``."""
        job = self._job
        from clonos.job.run_control import run_log  # with the driver, which is long to import

        settings = resolve_settings(options_of(job), command_line)
        if settings.slots_reason and not self._was_tried:
            report(f"{job.name} runs {WHERE[settings.run.slots]} ({settings.slots_reason})")
        self._was_tried = True
        with ExitStack() as stack:
            log = stack.enter_context(run_log())
            serve = stack.enter_context(_page(self._page_port)) if self._has_page else None
            with _saying_if_interrupted(job.name), shown_start(settings.run):
                handle = job.start(command_line=command_line)
            self.handle = handle
            with handle:
                page = "" if serve is None else serve(handle)
                if page:
                    report(f"the page of {job.name}: {page}")
                try:
                    result = self._watched(handle, log)
                except ClonosError as error:
                    if page and self._keeps_page_of_failure and not handle.is_stopping:
                        report(f"clonos: {short_report(error)}", logging.ERROR)
                        _keep_page(page)
                    raise
                for line in (result.summary(), *handle.summary()):
                    report(line)
                if page and not handle.is_stopping:
                    _keep_page(page)
        return result

    def _watched(self, handle: Handle, log: RunLog) -> Result:
        from clonos.job.run_control import controlled

        with handle.handling_signals(), controlled(handle, log):
            try:
                return watch(handle)
            finally:
                self.checkpoint = handle.status().checkpoint


def _keep_page(url: str) -> None:
    """Lets the page of a job that has ended stay until SIGINT or SIGTERM."""
    report(f"the job has ended; its page stays until Ctrl-C: {url}")
    # SIGINT too: a shell starts commands in the background with SIGINT ignored.
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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

    class _Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich would end the process
            self.quiet = True
            discard(sys.stderr)

    is_terminal = sys.stderr.isatty()
    return LiveTable(_Terminal(stderr=True, width=None if is_terminal else LINE_WIDTH, soft_wrap=not is_terminal))


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
