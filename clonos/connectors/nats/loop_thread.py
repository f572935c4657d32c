"""Thread with an event loop, in which connections to NATS live while a task is busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final

CLOSE_S: Final = 10.0


class LoopThread:
    """Thread that runs coroutines of one connector."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Begins a coroutine."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Runs a coroutine, which has its own limits of time, to its end.

        Raises: what it raises.
        """
        return self.start(coroutine).result()

    def soon(self, function: Any) -> None:
        """Calls a function in the thread."""
        self._loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """Cancels what runs, and ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_S / 2) if left else asyncio.sleep(0))
        finally:
            self._loop.close()
