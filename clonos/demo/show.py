"""``clonos demo`` from start to end: text, server, job, kills, display, verdict."""

from __future__ import annotations

import glob
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from clonos.core.model.errors import JobError
from clonos.demo.demo_report import DemoOutputs, kill_reports, show_gaps, show_timeline, show_verdict, write_json
from clonos.demo.demo_server import DemoServerProcess
from clonos.demo.demo_verdict import DemoVerdict, answers_given, committed_rows, judge, words_read
from clonos.demo.kills import Kill, KillKind, Kills
from clonos.demo.text import words_in, write_text
from clonos.demo.wordcount import wordcount
from clonos.job import Handle, Result
from clonos.job.live_table import LiveTable
from clonos.status import RecoveryState

POLL_INTERVAL_S: Final = 0.1
DEFAULT_LINES: Final = 8_000
LINES_PER_SECOND_MAX: Final = 1_000
"""Lines per second that two cores cannot reach, so that the text of a demo with a duration does not end too early."""

SECONDS_PER_KILL_MAX: Final = 20
"""Time that one kill may take. The text is long enough for all kills, and the input ends when they are made."""

PAGE_SECONDS: Final = 600.0
PAGE_LINES: Final = 60_000
"""Length of a demo with a page: it ends at either, or when it is stopped on the page."""

FILES: Final = 4
PARALLELISM: Final = 2
SPARE_SLOTS: Final = 4
DOMAINS: Final = 2
LINE_WIDTH: Final = 110
"""Width of the output, in characters, if there is no terminal."""

DEMO_MASTER: Final = "local-cluster[2,6,1024]"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the command line.

    ``kills``: the kinds of kills in order; () for all, or for none if there is a page, which has buttons for them;
    ("none",) for none.
    """

    slots: str = "spark"
    master: str | None = None
    pattern: str | None = None
    lines: int | None = None
    seconds: float | None = None
    kills: tuple[str, ...] = ()
    json_file: Path | None = None
    keep: Path | None = None
    has_page: bool = False
    page_port: int | None = None


@dataclass(frozen=True, slots=True)
class RunEvents:
    """Events of the job's run."""

    kills: list[Kill]
    recoveries: tuple[RecoveryState, ...]
    disturbed: list[str]
    was_stopped: bool
    is_unfinished: bool = False  # the job was stopped on its page


def run_demo(options: DemoOptions, console: Console | None = None) -> bool:
    """Runs the demo; returns whether no word was lost, duplicated or contradicted."""
    console = console or demo_console()
    options = _with_time_to_look(options) if options.has_page else options
    kinds = _kinds(options.kills)
    with demo_folder(options.keep) as folder, ExitStack() as stack:
        serve = stack.enter_context(page_of(options)) if options.has_page else None
        texts = _texts(options, folder)
        log = folder / "answers.jsonl"
        with closing(DemoServerProcess(log)) as server:
            console.print(f"looking up the words of {len(texts)} files at {server.url}, writing to {folder}")
            stop = folder / "stop"
            job = wordcount(texts, server.url, folder / "output", stop, PARALLELISM, **job_options(options, folder))
            with LiveTable(console) as display:
                display.show_event(f"starting {options.slots} slots")
                with closing(job.start()) as handle:
                    if serve is not None:
                        display.show_event(f"the page, where you can kill tasks: {serve(handle)}")
                    events = watch(handle, display, Kills(kinds), options.seconds, stop)
            if events.is_unfinished:
                console.print("the job was stopped on its page: it is resumed, and its input ends")
                stop.touch()
                with closing(job.start(resume=True)) as handle:
                    handle.wait()
        console.print("reading the output and the server's log")
        return _judge(options, folder, texts, log, events, console)


def demo_console() -> Console:
    """Returns the terminal, or a wide page without one."""
    return Console(width=None if sys.stdout.isatty() else LINE_WIDTH)


def watch(handle: Handle, display: LiveTable, kills: Kills, seconds: float | None, stop: Path) -> RunEvents:
    """Shows the job until it ends, makes the kills, and ends its input after ``seconds``.

    Raises: JobError: the job was cancelled.
    """
    ends_s = None if seconds is None else time.monotonic() + seconds
    was_stopped = False
    while (result := _result_of(handle)) is None:
        status = handle.status()
        display.show(status, handle.steps_with_sinks(), handle.keyed_steps())
        event = None if was_stopped else kills.look(status)
        if event is not None:
            display.show_event(event)
        if ends_s is not None and time.monotonic() >= ends_s and kills.has_ended and not was_stopped:
            was_stopped = True
            display.show_event("the time is up: ending the input")
            stop.touch()
    status = handle.status()
    display.show(status, handle.steps_with_sinks(), handle.keyed_steps())
    if not kills.has_ended:
        not_made = ", ".join(kills.kinds) or "none"
        display.show_event(f"the input ended before all kills were made and recovered from; not made: {not_made}")
    if result.was_aborted:
        raise JobError("the demo was cancelled on its page, so there is no verdict: Stop ends it with one.")
    is_unfinished = not result.has_finished
    return RunEvents(kills.done, status.recoveries, kills.disturbed, was_stopped or is_unfinished, is_unfinished)


def _result_of(handle: Handle) -> Result | None:
    """Waits for a moment; returns the result of a job that has ended."""
    try:
        return handle.wait(POLL_INTERVAL_S)
    except TimeoutError:
        return None


def page_of(options: DemoOptions) -> AbstractContextManager[Callable[[Handle], str]]:
    """Returns the page of the demo, as a context that yields what serves a job on it."""
    from clonos.server.job_page import job_page

    return job_page(options.page_port)


def _with_time_to_look(options: DemoOptions) -> DemoOptions:
    """Returns the options of a demo with a page: long enough to look at it, and no kills but those on the page."""
    kills = options.kills or ("none",)
    if options.lines is not None or options.seconds is not None or options.pattern is not None:
        return replace(options, kills=kills)
    return replace(options, kills=kills, lines=PAGE_LINES, seconds=PAGE_SECONDS)


def _judge(
    options: DemoOptions, folder: Path, texts: list[Path], log: Path, events: RunEvents, console: Console
) -> bool:
    counts = list(committed_rows(folder / "output" / "counts"))
    rejected = list(committed_rows(folder / "output" / "rejected"))
    words = words_in(texts)
    if events.was_stopped:
        words = words_read(words, answers_given(log))
    verdict: DemoVerdict = judge(words, (r.record for r in counts), (r.record for r in rejected), answers_given(log))
    reports = kill_reports(events.kills, events.recoveries, DemoOutputs.of(counts, rejected))
    if events.kills:
        show_timeline(console, events.kills, events.recoveries)
        show_gaps(console, reports)
    show_verdict(console, verdict, events.disturbed, len({kill.at_ns for kill in events.kills}))
    if options.json_file is not None:
        write_json(options.json_file, verdict, reports)
    return verdict.is_clean


def _kinds(names: tuple[str, ...]) -> list[KillKind]:
    if names == ("none",):
        return []
    unknown = sorted(set(names) - set(KillKind))
    if unknown:
        raise JobError(f"there is no kind of kill {unknown[0]!r}: give any of {', '.join(KillKind)}, or none.")
    return [KillKind(name) for name in names] or list(KillKind)


def _texts(options: DemoOptions, folder: Path) -> list[Path]:
    if options.pattern is not None:
        found = sorted(Path(name).resolve() for name in glob.glob(options.pattern, recursive=True))
        texts = [path for path in found if path.is_file()]
        if not texts:
            raise JobError(f"no file matches {options.pattern!r}.")
        return texts
    lines = DEFAULT_LINES if options.lines is None else options.lines
    if options.seconds is not None and options.lines is None:
        lines = int((options.seconds + SECONDS_PER_KILL_MAX * len(_kinds(options.kills))) * LINES_PER_SECOND_MAX)
    if lines < 1:
        raise JobError(f"the demo needs at least one line of text, not {lines}.")
    (folder / "text").mkdir(exist_ok=True)
    return write_text(folder / "text", lines, FILES)


def job_options(options: DemoOptions, folder: Path) -> dict[str, Any]:
    """Returns the options of the job of a demo."""
    return {
        "slots": options.slots,
        "master": options.master or DEMO_MASTER,
        "store": str(folder / "store"),
        "checkpoint_every": "1s",
        "standbys": 1,
        "spare_slots": SPARE_SLOTS,
        "domains": DOMAINS,
        "allow_injection": options.has_page,
    }


@contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """Yields the folder of a demo: ``keep``, or a temporary one. Raises: JobError: it is not empty."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise JobError(f"the folder {keep} is not empty: name a new or an empty folder.")
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="clonos-demo-") as folder:
        yield Path(folder)
