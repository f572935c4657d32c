"""Messages of a view that is on its way: kept until it is installed, so that no heartbeat is lost (protocol 6)."""

from __future__ import annotations

from clonos.core.model.ids import SlotId, ViewNumber
from clonos.core.wire.channel_messages import ChannelHandshake
from clonos.core.wire.recovery_messages import LogRequest

EARLY_MESSAGES_MAX = 10_000
"""Handshakes and log requests that are kept; more are dropped, and repeated by their senders."""


class EarlyMessages:
    """The latest message of each sender on each subject."""

    def __init__(self) -> None:
        self._messages: dict[tuple[int, ...], tuple[SlotId, ChannelHandshake | LogRequest]] = {}

    def holds(self, sender: SlotId, message: ChannelHandshake | LogRequest, installed: ViewNumber) -> bool:
        """Keeps a message of a later view than the installed one. Returns False for any other message."""
        if message.view <= installed:
            return False
        key: tuple[int, ...] = (sender,)
        if isinstance(message, ChannelHandshake):
            key += (message.channel,)
        else:
            key += (message.task, message.holder, message.is_keeper)
        if key in self._messages or len(self._messages) < EARLY_MESSAGES_MAX:
            self._messages[key] = sender, message
        return True

    def take(self) -> list[tuple[SlotId, ChannelHandshake | LogRequest]]:
        """Returns all that is kept, in the order in which it came, and keeps nothing more."""
        taken = list(self._messages.values())
        self._messages.clear()
        return taken
