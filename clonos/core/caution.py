"""A task whose predecessors died again and again takes its input element by element, and tells each beforehand."""

from __future__ import annotations

from clonos.core.ids import ChannelId
from clonos.core.ports import TaskPort

CAUTIOUS_BARRIERS = 2
"""Barriers after which a cautious task is an ordinary one, if it has taken an element before the first."""


class Caution:
    """It is on until the second barrier that follows an element which was told.

    So the checkpoint of the first has time to complete, and the next life, if there is one, begins nearer to the end.
    """

    def __init__(self, port: TaskPort, is_on: bool) -> None:
        self.is_on = is_on
        self._port = port
        self._has_approached = False
        self._barriers = 0  # since then

    def approach(self, channel: ChannelId, first_seq: int) -> None:
        """Tells what may be the task's end: so a process that dies of its input names the element."""
        if self.is_on:
            self._port.approach(channel, first_seq)
            self._has_approached = True

    def barrier(self) -> None:
        """An epoch has ended."""
        self._barriers += self._has_approached
        self.is_on = self.is_on and self._barriers < CAUTIOUS_BARRIERS
