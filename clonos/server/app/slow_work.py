"""Work that lasts, in threads of its own with a limit, so that other requests never wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import ParamSpec, TypeVar

from clonos.server.job_api.job_source import RequestDenied

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


class SlowWork:
    """Work of one sort. ``at_a_time``: at work. ``waiting_max``: that may wait. ``what``: in a refusal."""

    def __init__(self, at_a_time: int, waiting_max: int, what: str) -> None:
        self._free = asyncio.Semaphore(at_a_time)
        self._count_max, self._what = at_a_time + waiting_max, what
        self._works: set[asyncio.Task[object]] = set()

    async def run(
        self, function: Callable[Arguments, Returned], *arguments: Arguments.args, **options: Arguments.kwargs
    ) -> Returned:
        """Returns what a function returns. Raises: RequestDenied: there is too much of it."""
        if len(self._works) >= self._count_max:
            message = f"The server has as many {self._what} at work and waiting as it takes: try again in a minute."
            raise RequestDenied("server_busy", message, 429)
        work = asyncio.create_task(self._run(lambda: function(*arguments, **options)))
        self._works.add(work)
        work.add_done_callback(self._works.discard)
        return await asyncio.shield(work)  # it counts until it is done, although nobody may wait for it any more

    async def _run(self, function: Callable[[], Returned]) -> Returned:
        async with self._free:
            done: Future[Returned] = Future()
            Thread(target=_fulfil, args=(done, function), name=self._what).start()
            return await asyncio.wrap_future(done)


def _fulfil(done: Future[Returned], function: Callable[[], Returned]) -> None:
    try:
        done.set_result(function())
    except BaseException as error:  # noqa: BLE001 it is raised where the result is awaited
        done.set_exception(error)
