"""The end of a script that has jobs (``python job.py``): one short report of an error, and jobs that were never run.

Only the jobs of a script count. A job that an imported module, a test or a notebook describes may be run later, by
others, and their errors are shown as usual.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Final

from clonos.core.model.errors import ClonosError, InternalError, JobError, short_report

logger = logging.getLogger("clonos.run")

LIBRARY: Final = "clonos."
"""Beginning of the names of the modules between a script and this one."""


@dataclass(slots=True)
class Described:
    """Job as its script described it. ``was_used``: something started or compiled it."""

    name: str
    process: int
    was_used: bool = False


class RunWhileLoaded(JobError):
    """A file runs its job while ``clonos run`` loads it."""

    job: str

    def __str__(self) -> str:
        return (
            f'the file itself runs the job {self.job}, so "clonos run" would run it twice.'
            ' Run the file with python, or put its job.run() below: if __name__ == "__main__":'
        )


_described: list[Described] = []
_loading: list[str] = []


def describe(name: str) -> Described:
    """Registers a new job. One of a script is mentioned at the exit if nothing has used it until then, and errors of
    this library that end the script are shown without its frames."""
    described = Described(name, os.getpid())
    if _is_of_script(sys._getframe(1)):
        if not _described:
            atexit.register(_report)
        if sys.excepthook is sys.__excepthook__:
            sys.excepthook = _show_error
        _described.append(described)
    return described


@contextmanager
def loading(file: str) -> Iterator[None]:
    """Context in which the file of a job is loaded: its jobs must not be started there."""
    _loading.append(file)
    try:
        yield
    finally:
        _loading.pop()


def start(described: Described) -> None:
    """Notes that the job is started.

    Raises: RunWhileLoaded: the file of the job is only being loaded.
    """
    described.was_used = True
    if _loading:
        raise RunWhileLoaded(described.name)


def _is_of_script(frame: FrameType | None) -> bool:
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) is None or hasattr(sys, "ps1") or sys.flags.interactive:
        return False  # a prompt, a notebook or python -c
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(LIBRARY):
        frame = frame.f_back
    return frame is not None and frame.f_globals is vars(main)


def _show_error(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if isinstance(error, ClonosError) and not isinstance(error, InternalError):
        sys.stderr.write(f"clonos: {short_report(error)}\n")
    else:
        sys.__excepthook__(kind, error, traceback)


def _report() -> None:
    if getattr(sys, "last_value", None) is not None:
        return  # the script has failed and said why
    script = os.path.basename(str(getattr(sys.modules["__main__"], "__file__", "job.py")))
    for described in _described:
        if not described.was_used and described.process == os.getpid():
            logger.warning(
                "the job %s was described and never run. Call its run(), or start it from the command line:"
                " clonos run %s",
                described.name,
                script,
            )
