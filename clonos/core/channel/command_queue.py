"""Commands to the thread of one task, held back until the thread follows its log (protocol 6.6)."""

from __future__ import annotations

from collections.abc import Callable

from clonos.core.ports.task_port import Command, TaskHandle


class CommandQueue:
    """Way from the parts of a hosted task to its thread, before and after that has started.

    ``put`` hands a command to the thread, or keeps it for the thread. It is an attribute, because every batch passes
    here.
    """

    __slots__ = ("_handle", "_waiting", "put")

    def __init__(self) -> None:
        self._handle: TaskHandle | None = None
        self._waiting: list[Command] = []
        self.put: Callable[[Command], None] = self._waiting.append
        #: Invariant: put is that of the handle, if there is one

    @property
    def is_attached(self) -> bool:
        """Whether there is a thread, which takes commands at once."""
        return self._handle is not None

    def attach(self, handle: TaskHandle) -> None:
        """Takes the thread that later commands go to; earlier ones wait for ``flush``."""
        assert self._handle is None, handle
        self._handle, self.put = handle, handle.put

    def flush(self) -> None:
        """Hands over what has waited, because the thread has all that lies before it."""
        assert self._handle is not None
        for command in self._waiting:
            self.put(command)
        self._waiting.clear()
