"""``Job``, the class that users create and run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from clonos.api.graph import AnySink, JobGraph
from clonos.config import resolve_keywords, resolve_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clonos.job.handle import Handle
    from clonos.job.results import Result
    from clonos.spark.session import Session


class Job(JobGraph):
    """Streaming job: create streams from ``source``, then call ``run``::

        job = Job("wordcount", parallelism=2, checkpoint_every="5s")

    Options are keywords. ``clonos.toml``, ``CLONOS_*`` variables and the command line override them, in this order.
    ``errors``: a sink for records whose step raised; without one the job fails when the same record raises again.

    Raises: JobError at once for an unknown option or a value of the wrong type.
    """

    def __init__(self, name: str, *, errors: AnySink | None = None, **options: Any) -> None:
        super().__init__(name, errors=errors)
        self.file = _file_of(sys._getframe(1).f_code.co_filename)
        resolve_keywords(options)
        self.options = options

    def start(
        self,
        master: str | None = None,
        slots: str | None = None,
        spark: Session | None = None,
        *,
        command_line: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Handle:
        """Starts the job and returns at once; ``options`` override those of the job.

        ``slots``: "spark" or "process". ``master``: Spark master for the session that Clonos starts. ``spark``: an
        existing session or context to use instead, which stays open. ``command_line``: options with the precedence of
        the command line.
        """
        from clonos.job.handle import Handle

        named = {"master": master, "slots": slots}
        keywords = self.options | {key: value for key, value in named.items() if value is not None} | options
        return Handle(self, resolve_settings(keywords, command_line), spark)

    def run(
        self,
        master: str | None = None,
        slots: str | None = None,
        spark: Session | None = None,
        *,
        command_line: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Result:
        """Starts the job and waits for its end. The arguments are those of ``start``, the errors those of
        ``Handle.wait``.

        In the main thread, the first SIGINT or SIGTERM stops the job with a final checkpoint; the second aborts it.
        """
        handle = self.start(master, slots, spark, command_line=command_line, **options)
        with handle, handle.handling_signals():
            return handle.wait()


def _file_of(code_file: str) -> str:
    """Returns the absolute path of a file of code; "" for code that is in no file."""
    path = os.path.abspath(code_file)
    return path if os.path.isfile(path) else ""
