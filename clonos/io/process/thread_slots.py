"""Slots as threads of the driver's own process: for tests, notebooks and debuggers.

Tasks, channels, logs and checkpoints are the same as in processes. What a process gives is missing: no slot can be
killed, one interpreter is shared, and a task that never returns holds up the end of the job.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections.abc import Collection
from typing import Final

from clonos.io.process.slot_provider import Listener, SlotEnded

logger = logging.getLogger("clonos.run")

DOMAIN_PREFIX: Final = "thread-"
END_TIMEOUT_S: Final = 10.0
"""Seconds that all slots together have to end."""


class ThreadSlots:
    """Slot provider that starts threads; each slot is a failure domain of its own, though none can fail alone."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._has_to_end = threading.Event()
        self._threads: list[threading.Thread] = []

    def order(self, launch_spec: bytes, avoid_domains: Collection[str] = ()) -> int:
        """Starts one more slot and returns the order's number."""
        number = len(self._threads)
        name = f"{DOMAIN_PREFIX}{number}"
        thread = threading.Thread(target=self._run, args=(number, name, launch_spec), name=f"slot {name}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return number

    def _run(self, number: int, domain: str, launch_spec: bytes) -> None:
        reason = ""
        try:
            pickle.loads(launch_spec)(domain, self._has_to_end.is_set)  # noqa: S301 from this process
        except Exception as error:
            logger.exception("%s has failed", domain)
            reason = f"it raised {type(error).__name__}: {error}"
        self._listener(SlotEnded(number, reason))

    def withdraw(self, order: int) -> bool:
        """Returns False: threads start at once."""
        return False

    def close(self) -> None:
        """Ends every slot and waits for it."""
        self._has_to_end.set()
        deadline_s = time.monotonic() + END_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
            if thread.is_alive():
                logger.warning("the %s has not ended within %g s", thread.name, END_TIMEOUT_S)
