"""Hold on the news that checkpoints are complete, while the epochs that they end are read (protocol 6.13).

Slots truncate logs and in-flight logs when they learn that a checkpoint is complete. Until its epoch is read, or given
up, they do not learn so, as if the network had lost each message. The coordinator repeats it until a slot has it.
"""

from __future__ import annotations

from clonos.core.model.ids import CheckpointId
from clonos.core.wire.control_messages import Completed


class CompletedHold:
    """Messages about completed checkpoints on their way from the coordinator to the slots."""

    def __init__(self, released: CheckpointId) -> None:
        """``released``: the last checkpoint of which slots may know."""
        self.released = released
        self._held: dict[CheckpointId, Completed] = {}

    def passed(self, message: Completed) -> Completed | None:
        """Returns the message to send in place of this one, None for none: of the last checkpoint that is released,
        while this one is held."""
        if message.checkpoint <= self.released:
            return message
        self._held[message.checkpoint] = message
        return self._held.get(self.released)

    def release(self, checkpoint: CheckpointId) -> None:
        """Lets slots learn of a checkpoint, and so of the earlier ones, with the next message."""
        self.released = max(self.released, checkpoint)
        self._held = {number: held for number, held in self._held.items() if number >= self.released}
