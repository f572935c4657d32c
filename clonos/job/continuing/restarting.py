"""Runs of one job that start again when its environment has failed it, from its last checkpoint."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from clonos.core.model.errors import EnvironmentFault, short_report
from clonos.job.continuing.restart_strategy import FAILURES_REMEMBERED, RestartStrategy
from clonos.job.results import JobSuperseded, Result

if TYPE_CHECKING:
    from clonos.job.handle import Handle

OF_A_RESTART: Final[Mapping[str, object]] = {
    "resume": True,
    "overwrite": False,
    "checkpoint": None,
    "from_savepoint": "",
    "widths": (),
}
"""Options of a restart, which override those of the first start, wherever they were set: it resumes what that start has
begun."""


class Restartable(Protocol):
    """Attempts to run one job. ``checkpoint``: number of its last completed checkpoint as far as is known."""

    checkpoint: int
    handle: Handle | None

    def attempt(self, command_line: Mapping[str, object]) -> Result:
        """Runs the job to its end. Raises: see ``Handle.wait``."""
        ...


def run_to_its_end(
    name: str,
    attempts: Restartable,
    command_line: Mapping[str, object],
    strategy: RestartStrategy,
    report: Callable[[str, int], None],
) -> Result:
    """Runs a job, and again as ``strategy`` says if its environment fails after it has begun and nobody has asked for
    its end. ``report``: takes the lines about restarts, with their level.

    Raises: see ``Handle.wait``.
    """
    failures, failed_s = 0, deque[float](maxlen=FAILURES_REMEMBERED)
    while True:
        before = attempts.checkpoint
        try:
            return attempts.attempt(command_line)
        except JobSuperseded:
            raise
        except EnvironmentFault as error:
            failures = 1 if attempts.checkpoint != before else failures + 1
            failed_s.append(time.monotonic())
            may_restart = attempts.handle is not None and not attempts.handle.is_stopping
            delay_s = strategy.delay_s(failures, tuple(failed_s)) if may_restart else None
            if delay_s is None:
                raise
            report(f"clonos: {short_report(error)}", logging.ERROR)
            report(
                f"{name} starts again in {delay_s:g} s (loss {failures} without a checkpoint in between)",
                logging.WARNING,
            )
            time.sleep(delay_s)
            command_line = {**command_line, **OF_A_RESTART}
