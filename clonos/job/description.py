"""``Job``, the class that users create and run."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Unpack

from clonos.api.checks.doubtful_steps import warn_of_doubtful_steps
from clonos.api.checks.growing_state import warn_of_growing_state
from clonos.api.checks.missing_methods import method_missing
from clonos.api.checks.row_functions import warn_of_row_functions
from clonos.api.checks.unnamed_steps import warn_of_unnamed_steps
from clonos.api.checks.unused_results import check_results
from clonos.api.common import Common
from clonos.api.graph import JobGraph
from clonos.api.plan.graph_picture import graph_svg
from clonos.api.step import AnySink, StepInput
from clonos.config import SlotKind, resolve_keywords, resolve_settings
from clonos.core.model.errors import JobError
from clonos.core.model.wrong_calls import explains_calls
from clonos.io.process.fork_server_process import fork_server_ahead
from clonos.io.system.collections_paused import collections_paused
from clonos.job.script import script_exit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clonos.api.event_time import AnyTimestamps
    from clonos.api.stream import Stream
    from clonos.job.handle import Handle
    from clonos.job.job_options import JobOptions, Slots, StartOptions
    from clonos.job.results import Result
    from clonos.operators.connector_contract import PushSource, Source
    from clonos.spark.session import Frame, Session, SqlSession

logger = logging.getLogger("clonos.run")

T = TypeVar("T")

STEPS_SHOWN: Final = 8


@explains_calls
class Job:
    """Streaming job: create streams from ``source``, then call ``run``::

        job = Job("wordcount", parallelism=2, checkpoint_every="5s")

    Options are keywords. ``clonos.toml``, ``CLONOS_*`` variables and the command line override them, in this order.
    ``errors``: a sink for records whose step raised; without one the job fails when the same record raises again.
    ``limit``: the number of records after which each source ends; None for all.

    Raises: JobError at once for an unknown option or a value of the wrong type.
    """

    def __init__(
        self, name: str, *, errors: AnySink | None = None, limit: int | None = None, **options: Unpack[JobOptions]
    ) -> None:
        file = _file_of(sys._getframe(2).f_code.co_filename)
        self._graph = JobGraph(name, errors=errors, file=file, limit=limit)
        resolve_keywords(options)
        self._options: dict[str, object] = {**options}
        self._graph.take_rows = self._take_rows
        self._described = script_exit.describe(name)

    if not TYPE_CHECKING:  # a type checker must go on to report a missing method

        def __getattr__(self, attribute):
            raise method_missing(type(self), attribute)

    def __repr__(self) -> str:
        names = [step.name for step in self._graph.steps]
        more = f" and {len(names) - STEPS_SHOWN} more" if len(names) > STEPS_SHOWN else ""
        return f"<Job {self.name}: {', '.join(names[:STEPS_SHOWN]) or 'no steps'}{more}>"

    def _repr_html_(self) -> str:
        """Returns the picture of the job's graph: notebooks call this method."""
        return graph_svg(self._graph)

    def _take_rows(self, inputs: tuple[StepInput, ...], count: int) -> list[Any]:
        from clonos.job.preview import take_rows

        self._described.was_used = True
        return take_rows(self._graph, self._options, inputs, count)

    @property
    def name(self) -> str:
        """Returns the name of the job."""
        return self._graph.name

    def source(
        self,
        source: Source[T] | PushSource[T],
        *,
        timestamps: AnyTimestamps | None = None,
        limit: int | None = None,
        **common: Unpack[Common],
    ) -> Stream[T]:
        """Adds a source and returns the stream of its records.

        Args:
            source: a ``Source`` such as ``files.lines("in/")``, or a ``PushSource`` such as ``sockets.lines(host,
                port)``.
            timestamps: the name of the field or column with the timestamp of a record, a function of the record, or a
                ``Timestamps`` with the unit and the watermarks; None for a stream without event time. With a name or a
                function alone, a record behind the latest timestamp of its split is late: see ``out_of_order``.
            limit: ends the source after this number of records, which makes any input bounded. The source then has one
                task. None for that of the job, or all records.

        Raises:
            InvalidJob: this is not a source, or the name, the parallelism, the standby or the limit cannot be used.

        Example::

            lines = job.source(files.lines("texts/*.txt"), name="read")
        """
        return self._graph.source(source, timestamps=timestamps, limit=limit, **common)

    def explain(
        self,
        format: Literal["text", "mermaid", "json"] = "text",
        *,
        command_line: Mapping[str, object] | None = None,
        **options: Unpack[StartOptions],
    ) -> str:
        """Returns the plan of the job, without starting it: its steps, and the vertices and tasks that run them.

        ``format``: "text" for people, "mermaid" for a flowchart, "json" for programs. ``options`` override those of the
        job. Sources list their splits; input that does not exist yet is mentioned in the plan.

        Raises:
            InvalidJob: the job cannot be compiled, or there is no such format.

        Example::

            print(job.explain())
        """
        from clonos.api.plan.explaining import explained

        self._described.was_used = True
        settings = resolve_settings({**self._options, **options}, command_line)
        return explained(self._graph, settings.core, settings.run.parallelism, format)

    def start(
        self,
        master: str | None = None,
        slots: Slots | None = None,
        spark: Session | None = None,
        *,
        command_line: Mapping[str, object] | None = None,
        **options: Unpack[StartOptions],
    ) -> Handle:
        """Starts the job and returns at once; ``options`` override those of the job.

        ``slots``: "spark", "process" (child processes), or "auto", the default: Spark where PySpark is installed or a
        master is set. ``master``: Spark master for the session that Clonos starts. ``spark``: an existing session or
        context to use instead, which stays open. ``command_line``: options with the precedence of
        the command line.

        Raises: JobError for options that exclude each other, a job that cannot be compiled or has no output.
        """
        script_exit.start(self._described)
        if master is not None and slots == SlotKind.PROCESS:
            raise JobError('master= is for slots="spark", and slots is "process". Leave out one of them.')
        named = {"master": master, "slots": slots}
        keywords = {**self._options, **{key: value for key, value in named.items() if value is not None}, **options}
        settings = resolve_settings(keywords, command_line)
        check_results(self._graph)
        warn_of_unnamed_steps(self._graph)
        warn_of_growing_state(self._graph)
        warn_of_row_functions(self._graph)
        warn_of_doubtful_steps(self._graph)
        has_to_import = "clonos.job.handle" not in sys.modules  # else there is little to do meanwhile
        with fork_server_ahead(settings.run if has_to_import else None), collections_paused():
            from clonos.job.handle import Handle

            return Handle(self._graph, settings, spark)

    def run(
        self,
        master: str | None = None,
        slots: Slots | None = None,
        spark: Session | None = None,
        *,
        restart_strategy: str = "none",
        command_line: Mapping[str, object] | None = None,
        **options: Unpack[StartOptions],
    ) -> Result:
        """Starts the job and waits for its end. The other arguments are those of ``start``, the errors those of
        ``Handle.wait``. ``restart_strategy``: whether the job starts again from its last checkpoint when its
        environment has failed it, such as "fixed-delay:attempts=10,delay=1s" (docs/operations.md).

        In the main thread, the first SIGINT or SIGTERM stops the job with a final checkpoint; the second aborts it.

        Raises: RestartStrategyInvalid.
        """
        from clonos.job.continuing.restart_strategy import restart_strategy as strategy_of
        from clonos.job.continuing.restarting import run_to_its_end

        runs = _Runs(lambda given: self.start(master, slots, spark, command_line=given, **options))
        return run_to_its_end(self.name, runs, command_line or {}, strategy_of(restart_strategy), _log_restart)

    def to_dataframe(
        self,
        spark: SqlSession,
        *,
        step: str | None = None,
        command_line: Mapping[str, object] | None = None,
        **options: Unpack[StartOptions],
    ) -> Frame:
        """Runs the job to its end and returns the rows that its sink of files has, as a DataFrame of ``spark``.

        The job runs on the session, or on processes by ``slots="process"``. ``step`` names the sink if there are
        several. The rows of ``run`` alone are returned by ``frames.read``.

        Raises:
            InvalidConnector: the job has no sink of files, or several.
            JobError: the job was stopped before its end, so rows are missing. The errors of ``run``.

        Example::

            totals = job.to_dataframe(spark)
        """
        from clonos.spark.frames.frame_output import output_of, read_output

        folder = output_of(self._graph, step)
        settings = resolve_settings({**self._options, **options}, command_line)
        session = spark if settings.run.slots is SlotKind.SPARK else None
        result = self.run(spark=session, command_line=command_line, **options)
        if not result.has_finished:
            raise JobError(f"{result.summary()}; its output is incomplete, so it becomes no DataFrame.")
        return read_output(spark, folder, None)


class _Runs:
    """Attempts to run a job, for ``run_to_its_end``. ``start``: starts it with options of the command line."""

    def __init__(self, start: Callable[[Mapping[str, object]], Handle]) -> None:
        self._start = start
        self.checkpoint = 0
        self.handle: Handle | None = None

    def attempt(self, command_line: Mapping[str, object]) -> Result:
        """Runs the job to its end. Raises: see ``Handle.wait``."""
        from clonos.job.run_control import controlled, run_log  # with the driver, which is long to import

        with run_log() as log:
            self.handle = handle = self._start(command_line)
            with handle, handle.handling_signals(), controlled(handle, log):
                try:
                    return handle.wait()
                finally:
                    self.checkpoint = handle.status().checkpoint


def _log_restart(line: str, level: int) -> None:
    logger.log(level, "%s", line)


def _file_of(code_file: str) -> str:
    """Returns the absolute path of a file of code; "" for code that is in no file."""
    path = os.path.abspath(code_file)
    return path if os.path.isfile(path) else ""


def graph_of(job: Job) -> JobGraph:
    """Returns the graph of a job, which its caller will run or test."""
    job._described.was_used = True
    return job._graph


def options_of(job: Job) -> dict[str, object]:
    """Returns the keywords that the job was created with."""
    return dict(job._options)
