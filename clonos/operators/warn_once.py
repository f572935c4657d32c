"""Warning that a step gives once: not again in its task's life, not in a replay, and for one of its tasks only."""

from __future__ import annotations

import logging
from collections.abc import Callable

from clonos.core.ports.recorder import Recorder
from clonos.core.wire.control_messages import ONCE_PER_STEP


class WarnOnce:
    """Warning of one task of a step. The driver logs that of the first task."""

    __slots__ = ("_step", "_recorder", "has_warned")

    def __init__(self, step: str, recorder: Recorder) -> None:
        self._step, self._recorder = step, recorder
        self.has_warned = False

    def warn(self, text: Callable[[], str]) -> None:
        """Warns with the text that ``text`` returns, unless the task has warned before or replays."""
        if not self.has_warned and self._recorder.live:
            logging.getLogger(f"{ONCE_PER_STEP}{self._step}").warning("%s", text())
            self.has_warned = True
