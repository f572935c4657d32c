"""Times at which the driver removes what sinks have prepared and no checkpoint will commit."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from clonos.operators.chain_outputs import abort_output

logger = logging.getLogger("clonos.coordinator")


class Lives(NamedTuple):
    """Number of the view, its generation, and the highest number that a checkpoint has used, when a commit is due."""

    view: int
    generation: int
    highest: int


class AbandonedOutput:
    """Output of incarnations that have died. One thread calls its methods."""

    def __init__(self) -> None:
        self._view: int | None = None
        self._until = 0
        self._is_due = False

    def remove(self, sinks: Iterable[object], job_id: str, checkpoint: int, lives: Lives) -> None:
        """Removes it after a commit, if tasks have died since the last time; logs what fails.

        A successor prepares anew at each barrier that it passes again, up to the highest one. So the output of the dead
        is complete when a later checkpoint is committed.
        """
        if lives.view != self._view:
            self._view, self._until, self._is_due = lives.view, lives.highest, True
        if not self._is_due:
            return
        self._is_due = checkpoint <= self._until
        for sink in sinks:
            try:
                abort_output(sink, job_id, checkpoint, lives.generation)
            except Exception as error:  # noqa: BLE001  what remains only takes space
                self._is_due = True
                text = "output that no checkpoint will commit was not removed, and is tried again"
                logger.warning("checkpoint %d: %s: %s: %s", checkpoint, text, type(error).__name__, error)
