"""``Job``: what a user describes and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos.api.graph import AnySink, JobGraph
from clonos.config import settle, settle_alone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from clonos.job.handle import Handle
    from clonos.job.results import Result
    from clonos.spark.session import Session


class Job(JobGraph):
    """A streaming job: make streams from ``source``, then ``run`` it.

    Options by keyword: ``parallelism=2``, ``checkpoint_every="5s"``, ``standbys=1`` ... ``clonos.toml``, ``CLONOS_*``
    variables and the command line overrule them, in this order. ``errors``: a sink for records whose step raised;
    without one the job fails at such a record. An unknown or ill-typed option raises ``JobError`` at once.
    """

    def __init__(self, name: str, *, errors: AnySink | None = None, **options: Any) -> None:
        super().__init__(name, errors=errors)
        settle_alone(options)
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
        """Starts the job and returns at once; options go over those of the job.

        ``slots``: "spark" or "process". ``master``: of the Spark that is started for the job; ``spark``: a session or
        context of your own instead, which stays open. ``command_line``: options with the force of the command line.
        """
        from clonos.job.handle import Handle

        named = {"master": master, "slots": slots}
        keywords = self.options | {key: value for key, value in named.items() if value is not None} | options
        return Handle(self, settle(keywords, command_line), spark)

    def run(
        self,
        master: str | None = None,
        slots: str | None = None,
        spark: Session | None = None,
        *,
        command_line: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Result:
        """Starts the job and waits for its end. See ``start`` for the arguments and ``Handle.wait`` for the errors.

        In the main thread, the first SIGINT or SIGTERM stops it with a final checkpoint, the second aborts it.
        """
        handle = self.start(master, slots, spark, command_line=command_line, **options)
        with handle, handle.heeding_signals():
            return handle.wait()
