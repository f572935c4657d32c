"""Page of a job that a command runs: ``clonos run --ui`` and ``clonos demo --ui``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from clonos.core.model.errors import needing_extra

if TYPE_CHECKING:
    from clonos.job.handle import Handle


@contextmanager
def job_page(port: int | None) -> Iterator[Callable[[Handle], str]]:
    """Context in which a job can have a page. Gives a function that serves the page of a started job and returns its
    URL, with a fresh token.

    Log lines are kept for the page from now on, and its port is taken now: a job does not start without its page.
    ``port``: None takes the first free one from 8090 on.

    Raises: ExtraMissing: the libraries are not installed. PortTaken.
    """
    with needing_extra("the page of a job", "server"):
        from clonos.server.job_api.log_ring import log_ring
        from clonos.server.job_api.server_thread import LOOPBACK, listen_tcp, served_job
    with ExitStack() as stack:
        listener = listen_tcp(LOOPBACK, port)
        stack.callback(listener.close)
        logs = stack.enter_context(log_ring())
        yield lambda handle: stack.enter_context(served_job(handle, logs, listener))
