"""``clonos dev``: runs a job on child processes with a preview of its output, and again whenever its code changes.

The parent process has no thread. It forks a process for each run, so that a run has the code as it is, and watches the
files. Once the first run is under way it imports the modules of a run, so that the next one begins with less work.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from clonos.config import resolve_settings
from clonos.core.model.errors import ClonosError, short_report
from clonos.io.process.fork_server_process import fork_server_ahead

if TYPE_CHECKING:
    from clonos.job.description import Job

LOOK_EVERY_S: Final = 0.2
WARM_AFTER_LOOKS: Final = 10
WARM_MODULES: Final = (
    "clonos.cli.console",
    "clonos.cli.console_preview",
    "clonos.job.handle",
    "clonos.api.plan.compiling",
)
FILES_MAX: Final = 2_000
CHECKPOINT_EVERY: Final = "1s"
ON_PROCESSES: Final = {"slots": "process", "resume": False}

Versions = dict[str, tuple[int, int]]


def develop(file: str, load: Callable[[], Job], runs_max: int | None = None) -> None:
    """Runs the job that ``load`` returns until SIGINT. ``file``: the job's, whose folder is watched. ``runs_max``: end
    after this number of runs."""
    folder = Path(file).resolve().parent
    runs = 0
    while runs_max is None or runs < runs_max:
        runs += 1
        before = versions(folder)
        child = os.fork()
        if child == 0:
            _run_and_exit(load)
        try:
            if not _wait_for_change(folder, before, child, runs == runs_max):
                return
        except KeyboardInterrupt:  # the terminal has sent it to the child too
            with suppress(ChildProcessError):  # it had ended before
                os.waitpid(child, 0)
            return


def versions(folder: Path) -> Versions:
    """Returns time and size of the Python files and settings below a folder, without hidden folders and environments.

    A file that disappears meanwhile is left out.
    """
    found: Versions = {}
    for path in _sources(folder):
        try:
            status = path.stat()
        except OSError:
            continue
        found[str(path)] = status.st_mtime_ns, status.st_size
        if len(found) >= FILES_MAX:
            break
    return found


def _sources(folder: Path) -> Iterable[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(
            name for name in folders if not name.startswith((".", "__")) and not Path(root, name, "pyvenv.cfg").exists()
        )
        yield from (Path(root, name) for name in sorted(names) if name.endswith(".py") or name == "clonos.toml")


def _wait_for_change(folder: Path, before: Versions, child: int, is_last: bool) -> bool:
    """Waits until a file has changed, and ends the run then. Returns False when the last run has ended.

    Raises: KeyboardInterrupt: at the next look after the interrupt, which an import or a finalizer would swallow.
    """
    is_running = True
    with _interrupts() as interrupts:
        for look in count():
            if interrupts:
                raise KeyboardInterrupt
            if is_running and os.waitpid(child, os.WNOHANG)[0]:
                is_running = False
                if is_last:
                    return False
                print("waiting for a change of the job's files; Ctrl-C ends", file=sys.stderr, flush=True)
            now = versions(folder)
            if now != before:
                changed = sorted(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))
                print(f"{os.path.relpath(changed[0])} has changed: starting again", file=sys.stderr, flush=True)
                if is_running:
                    os.kill(child, signal.SIGTERM)
                    os.waitpid(child, 0)
                return True
            if look == WARM_AFTER_LOOKS:
                for name in WARM_MODULES:
                    import_module(name)
            time.sleep(LOOK_EVERY_S)
    raise AssertionError("unreachable")


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collects interrupts in place of raising them."""
    found: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: found.append(number))
    try:
        yield found
    finally:
        signal.signal(signal.SIGINT, before)


def _run_and_exit(load: Callable[[], Job]) -> NoReturn:
    """Runs the job in this process, which was forked for it."""
    code = 0
    try:
        with fork_server_ahead(resolve_settings({}, ON_PROCESSES).run):
            _run(load())
    except ClonosError as error:
        print(f"clonos: {short_report(error)}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001  code of the user, whose next version may be right
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(job: Job) -> None:
    from clonos.cli.console import shown_start, watch
    from clonos.cli.console_preview import MARK, previewed
    from clonos.job.description import graph_of, options_of
    from clonos.job.handle import Handle

    has_to_stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: has_to_stop.set())
    with tempfile.TemporaryDirectory(prefix="clonos-dev-") as store:
        keywords = {"checkpoint_every": CHECKPOINT_EVERY} | options_of(job) | {"slots": "process"}
        settings = resolve_settings(keywords, {**ON_PROCESSES, "store": store})
        with shown_start(settings.run):
            handle = Handle(previewed(graph_of(job)), settings)
        with handle:
            watch(handle, has_to_stop.is_set)
            summary = handle.summary()
    if not has_to_stop.is_set():
        lines = [f"{job.name} has ended ({MARK}: nothing was written)", *summary]
        print("\n".join(lines), file=sys.stderr)
