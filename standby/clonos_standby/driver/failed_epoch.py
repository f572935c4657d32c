"""Epoch of the task whose code has ended the job: it is captured before the slots are released.

The end of the job waits for it, but not longer than ``TIME_S``. The error of the job stays the first thing said.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from clonos.core.coordinator.coordinator_effects import Effect, JobFailed
from clonos.core.model.errors import ClonosError
from clonos.core.model.ids import TaskId
from clonos.core.model.plan import Plan
from clonos.io.epochs.record_reader import lacking
from clonos_standby.driver.captures import Captures

TIME_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 5.0


class FailedEpoch:
    """Holds back the effects of a failure while the epoch of the failed task is read."""

    def __init__(
        self, captures: Captures, root: Path | None, end: Callable[[list[Effect]], None], time_s: float = TIME_S
    ) -> None:
        """``end``: performs the effects; any thread may call it. ``root``: for the record; None: none is kept.
        ``time_s``: for which the end of the job waits."""
        self._captures, self._root, self._end, self.time_s = captures, root, end, time_s
        self._lock = threading.Lock()
        self._held: list[Effect] = []
        self._timer: threading.Timer | None = None
        self._thread: threading.Thread | None = None

    def takes(self, effects: list[Effect], plan: Plan) -> bool:
        """Returns whether the effects wait for the epoch of a task. Those that come after them wait too, because they
        release slots. All come by ``end``."""
        with self._lock:
            if self._held:
                self._held += effects
                return True
        failed = next((effect for effect in effects if isinstance(effect, JobFailed)), None)
        if failed is None or self._root is None or not failed.error:
            return False
        task = plan.task_named(failed.task_name)
        if task is None:
            return False
        self._held = list(effects)
        late = f"Note: the epoch of {failed.task_name} is not kept: to read it takes longer than {self.time_s:g} s."
        self._timer = threading.Timer(self.time_s, self._release, (failed, late))
        self._timer.daemon = True
        self._thread = threading.Thread(target=self._capture, args=(task, failed), name="failed epoch", daemon=True)
        self._timer.start()
        self._thread.start()
        return True

    def _capture(self, task: TaskId, failed: JobFailed) -> None:
        assert self._root is not None
        try:
            folder = self._captures.take(task, self._root, self.time_s, failed)
        except ClonosError as error:
            self._release(failed, f"Note: {error}")
        else:
            notes = (f"Note: it lacks {each}" for each in lacking(folder))
            command = f"clonos replay {folder}{'' if self._captures.has_code else ' --code FILE'}"
            text = f"The epoch of {failed.task_name} is kept in {folder}. To see it again:\n  {command}"
            self._release(failed, "\n".join((text, *notes)))

    def _release(self, failed: JobFailed, text: str) -> None:
        """Performs what was held back, once."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            held, self._held = self._held, []
        if held:
            reported = replace(failed, epoch=text)
            self._end([reported if effect is failed else effect for effect in held])

    def close(self) -> None:
        """Waits for the threads."""
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
