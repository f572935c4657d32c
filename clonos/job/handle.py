"""Handle of a started job: wait for it, stop it, and query its status."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

from clonos.api.graph import JobGraph
from clonos.config import JobSettings
from clonos.core.coordinator.coordinator_effects import Alarm, Ending, JobDone, JobFailed, Milestone, RecoveryEvent
from clonos.core.coordinator.relocation import REASON as MOVE
from clonos.core.model.errors import Blame, InternalError, JobError
from clonos.core.model.ids import TaskId, view_name
from clonos.core.model.plan import Plan
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.wire.control_messages import AT_WORK
from clonos.io.store.savepoint import Savepoint, SavepointNotWritten, check_free
from clonos.job.continuing.taking import RequestedCheckpoints
from clonos.job.launch import launch
from clonos.job.metrics_export import ObservedJob, start_exporters
from clonos.job.recording import epochs_folder
from clonos.job.rescaling import RequestedWidths, Rescaled
from clonos.job.results import Result, error_of, result_of
from clonos.job.run_history.history_events import Event
from clonos.job.run_history.history_writer import HistoryWriter
from clonos.job.run_report import (
    immediate_outputs,
    records_out,
    recovery_sentence,
    steps_with_sinks,
    summary_lines,
    what_a_stop_waits_for,
)
from clonos.job.scaling_advice import ScalingAdviser
from clonos.job.shown_metrics import ShownMetrics
from clonos.job.skew import keyed_steps
from clonos.job.stack_documents import FLAME_S_MAX, dump_document, flame_document
from clonos.job.status_view import build_status, checkpoint_states, status_html
from clonos.operators.connector_contract import finish_output
from clonos.operators.job_image import JobImage
from clonos.status import CheckpointState, MetricValue, Status, metric_values
from clonos_standby.driver.driver import JobEnd, Progress
from clonos_standby.driver.failed_epoch import FailedEpoch

if TYPE_CHECKING:
    from clonos.job.checkpointed_state import CheckpointedState

logger = logging.getLogger("clonos.run")

ALARMS_MAX: Final = 100
WAIT_SLICE_S: Final = 0.1
STOP_REPORT_FIRST_S: Final = 2.0
"""Seconds after a stop until it is said what the stop waits for; each further pause is twice as long."""

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@explains_calls
class Handle:
    """Handle of a job, which its creation starts. The job's processes end with ``wait`` or with ``close``."""

    def __init__(self, graph: JobGraph, settings: JobSettings, session: Any = None) -> None:
        self._alarms: deque[str] = deque(maxlen=ALARMS_MAX)
        self._alarms_count = 0
        self._listeners: list[Callable[[Progress], None]] = []
        self.graph, self.settings = graph, settings
        self._shown_metrics = ShownMetrics()
        self._history = HistoryWriter()
        self._launched = launch(graph, settings, session, self._on_progress)
        self._name = graph.name
        self._fault_points = settings.run.fault_points
        self._is_closed = False
        self._peek_lock = threading.Lock()
        self._is_stopping = False
        self._stop_report_due_s, self._stop_report_every_s = 0.0, STOP_REPORT_FIRST_S
        self._last_hang = ""
        self._final_savepoint = ""
        self._requested = RequestedCheckpoints(graph.name, self._launched.driver, self._launched.start.store)
        self._widths = RequestedWidths(self._launched.image, self._launched.driver)
        self._began_s = time.monotonic()
        self._adviser: ScalingAdviser | None = None
        if settings.run.scale:
            self._adviser = ScalingAdviser(self.image, settings.run, lambda: self.plan, self.rescale)
        try:
            parts = self.status, self.checkpoints, self._history.listen, self._launched.driver.trace
            observed = ObservedJob(graph, self.job_id, *parts)
            self._exporters = start_exporters(settings, observed)
        except BaseException:
            self._launched.close()
            self._launched.deployment.close()
            raise
        self._launched.driver.start()
        self._launched.driver.captures.on_written = self._history.note
        self._history.start(self._launched)
        if self._adviser is not None:
            self._adviser.start(self.status)

    def wait(self, timeout: float | None = None) -> Result:
        """Waits for the job's end and returns its result; its processes have ended then.

        ``timeout``: seconds; None waits without a limit.

        Raises: TimeoutError when the job is still running; JobCrashed when the job is at fault; JobBroke when its
        environment is; JobHitBug when this library is; JobSuperseded when another driver has taken the job over;
        SavepointNotWritten when the job was to be stopped with a savepoint and was aborted.
        """
        try:
            end = self._await_end(timeout)
        except CancelledError:
            raise InternalError(f"job {self._name} was closed before its end.") from None
        except TimeoutError:
            if not self._launched.driver.result.done():
                raise
            self.close()
            raise
        except BaseException:
            if self._launched.driver.result.done():
                self.close()
            raise
        self.close()
        if isinstance(end, JobDone):
            self._write_final_savepoint(end)
            if end.ending is Ending.FINISHED:
                finish_output(self._launched.image.sinks.values(), self._launched.job_id)
                self._launched.start.finish()
            return result_of(end, self.status())
        raise error_of(self._name, end)

    def _write_final_savepoint(self, end: JobDone) -> None:
        url, self._final_savepoint = self._final_savepoint, ""
        if url and end.ending is Ending.ABORTED:
            raise SavepointNotWritten(url, self._name)
        if url:
            self._requested.save_last(url)

    def _await_end(self, timeout: float | None) -> JobEnd:
        """Waits in slices of 0.1 s, because a signal that another thread received does not end a wait of the main
        thread."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while True:
            left_s = WAIT_SLICE_S if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            self._report_stop()
            try:
                return self._launched.driver.result.result(min(left_s, WAIT_SLICE_S))
            except TimeoutError:
                if self._launched.driver.result.done() or (deadline_s is not None and time.monotonic() >= deadline_s):
                    raise

    def _report_stop(self) -> None:
        """Says from time to time what a stop waits for."""
        if self._is_stopping and time.monotonic() >= self._stop_report_due_s:
            self._stop_report_every_s *= 2
            self._stop_report_due_s = time.monotonic() + self._stop_report_every_s
            waits = self._launched.driver.ask(what_a_stop_waits_for)
            hang = f" ({self._last_hang})" if self._last_hang else ""
            logger.warning("waiting for the final checkpoint: %s%s; another signal ends the job at once", waits, hang)

    def checkpoint(self, timeout: float | None = None) -> int:
        """Begins a checkpoint now and returns its number, before it is complete.

        ``timeout``: seconds to wait for its beginning, which a recovery or the commit of another one may delay.

        Raises: JobError: the job has ended. TimeoutError.
        """
        return self._requested.begin(timeout)

    def savepoint(self, path: str | os.PathLike[str], timeout: float | None = None) -> Savepoint:
        """Takes a checkpoint now, waits until it is complete, and copies it to ``path``, from where jobs can start.

        ``path``: a new folder, or the URL of a place that can hold a checkpoint store. ``timeout``: seconds to wait for
        the checkpoint.

        Raises: JobError: the place is taken, or the job has ended. EnvironmentFault: the copy failed. TimeoutError.
        """
        return self._requested.save(os.fspath(path), timeout)

    def begin_savepoint(self, path: str | None) -> str:
        """Requests a savepoint and returns its place at once; by default a new one beside the store. The log says when
        it is written, or why it is not.

        Raises: JobError: the place is taken, or the store is no folder.
        """
        url = self._requested.default_url() if path is None else path
        check_free(url)
        self._requested.begin_save(url)
        return url

    def finish_savepoints(self) -> None:
        """Waits for the savepoints that were begun, if the job has ended."""
        self._requested.finish()

    def rescale(
        self, widths: Mapping[str, int] | None = None, /, *, timeout: float | None = None, **tasks: int
    ) -> Rescaled:
        """Changes the numbers of tasks of steps while the job runs, and waits until all tasks run again:
        ``handle.rescale(count=4)``.

        ``widths``: steps whose names are no identifiers, ``{"count by word": 4}``. ``timeout``: seconds to wait.

        Raises: RescaleRefused: the job goes on as before, for the reason that the error gives. RescaleEnded: it has
        ended; the error says what became of the change. TimeoutError: the change takes longer, and goes on; or the
        tasks do not run yet, and nothing was requested, as the text says.
        """
        return self._widths.change(self._widths.named(widths, tasks), timeout)

    def place_anew(
        self, widths: Mapping[str, int] | None = None, /, *, timeout: float | None = None, **tasks: int
    ) -> Rescaled:
        """Spreads all tasks over the slots that the job has now, as at its start, and waits until they run again. With
        ``widths``, or steps as keywords, their numbers of tasks change too. Takes and raises what ``rescale`` does.

        A source with a journal stays where it is.
        """
        return self._widths.change(self._widths.named(widths, tasks), timeout, is_placed_anew=True)

    def begin_rescale(self, widths: Mapping[str, int], *, is_placed_anew: bool = False) -> tuple[int, dict[str, int]]:
        """Begins to change the numbers of tasks of steps; returns the number of the request, 0 if there is nothing to
        change, and what each step will have. The log says when it has, or why it has not. ``is_placed_anew``: all tasks
        are spread over the slots too, as by ``place_anew``.

        Raises: RescaleRefused. TimeoutError: the tasks do not run yet."""
        return self._widths.begin(self._widths.named(widths, {}), is_placed_anew=is_placed_anew)

    def stop(self, drain: bool = True, savepoint: str | os.PathLike[str] | None = None) -> None:
        """Requests the end of the job and returns at once. ``drain``: with a final checkpoint that commits all output
        so far; if the tasks do not run yet, the stop waits until they do. ``savepoint``: where ``wait`` copies this
        checkpoint to.

        Raises: JobError: the place of the savepoint is taken, or ``drain`` is False.
        """
        if savepoint is not None:
            if not drain:
                raise JobError("stop(savepoint=...) needs the final checkpoint, so it does not go with drain=False.")
            check_free(os.fspath(savepoint))
            self._final_savepoint = os.fspath(savepoint)
        self._request_stop(drain, ends_start=False)

    def _request_stop(self, drain: bool, ends_start: bool) -> None:
        self._stop_report_due_s = time.monotonic() + STOP_REPORT_FIRST_S
        self._is_stopping = True
        self._launched.driver.stop(drain, ends_start)

    def status(self) -> Status:
        """Returns the current status of the job."""
        query = partial(build_status, self._launched.job_id, self._is_stopping, tuple(self._alarms))
        status = self._shown_metrics.applied_to(self._launched.driver.ask(query))
        savepoints = self._requested.written_now()
        return replace(
            status,
            fault_points=self._fault_points,
            alarms_count=self._alarms_count,
            savepoints=savepoints,
            scaling=() if self._adviser is None else self._adviser.advice,
        )

    def metrics(self) -> list[MetricValue]:
        """Returns the metrics of user code (``clonos.metrics``) by task, also after the end of the job."""
        return metric_values(self.status().tasks)

    def checkpoints(self) -> tuple[CheckpointState, ...]:
        """Returns the last checkpoints that this driver has begun, oldest first."""
        return self._launched.driver.ask(checkpoint_states)

    def end(self) -> JobEnd | None:
        """Returns how the job ended; None while it runs. Its processes may still be ending."""
        result = self._launched.driver.result
        if not result.done():
            return None
        error = None if result.cancelled() else result.exception()
        if result.cancelled() or error is not None:
            return JobFailed(Blame.LIBRARY, f"the driver has ended: {error or 'the job was closed before its end'}.")
        return result.result()

    @property
    def is_stopping(self) -> bool:
        """Returns whether a stop was requested, by ``stop`` or by a signal."""
        return self._is_stopping

    @property
    def is_over(self) -> bool:
        """Returns whether the job has ended with all its processes."""
        return self._launched.driver.has_ended

    def listen(self, listener: Callable[[Progress], None]) -> None:
        """Calls ``listener`` at each alarm and each milestone of a recovery, in the coordinator's thread: it must
        neither wait nor raise."""
        self._listeners.append(listener)

    @property
    def job_id(self) -> str:
        """Returns the id of the job in its store."""
        return self._launched.job_id

    @property
    def image(self) -> JobImage:
        """Returns the compiled job."""
        return self._launched.image

    @property
    def plan(self) -> Plan:
        """Returns the plan with the numbers of tasks now."""
        return self._launched.driver.ask(lambda coordinator: coordinator.plan)

    @property
    def store_url(self) -> str:
        """Returns the URL or the path of the checkpoint store."""
        return self._launched.start.store.url

    def history(self) -> list[Event]:
        """Returns what has happened to the job: what earlier drivers have left in the store, and what this one has
        noted so far.

        Raises: StoreFailed.
        """
        return self._history.of_all_drivers()

    def outputs(self) -> list[str]:
        """Returns where the output of transactional sinks is."""
        return self._launched.start.outputs()

    def peek(self, step: str, count: int = 10, timeout: float = 5.0) -> list[Any]:
        """Returns up to ``count`` of the next rows that a step emits, for a look at a running job.

        The rows may be in no checkpoint yet. ``timeout``: seconds to wait for them; fewer rows, or none, are returned
        if the step does not emit them in that time or the job has ended.

        Raises: JobError when the job has no such step, or ``count`` is not an int of at least 1.
        """
        if type(count) is not int or count < 1:
            raise JobError(f"peek(count={count!r}) needs an int of at least 1.")
        image, plan = self._launched.image, self.plan
        emitting = {node.step: number for number, v in enumerate(image.vertices) for node in v.nodes if node.followers}
        if step not in emitting:
            raise JobError(f"the job {self._name} has no step {step!r} that emits rows; it has {', '.join(emitting)}.")
        if self._launched.driver.result.done():
            return []
        tasks = [task for task in plan.tasks if plan.vertex_of[task] == emitting[step]]
        with self._peek_lock:  # a later look would replace an earlier one
            return self._launched.driver.peeks.look(step, tasks, count, timeout)

    def state(self, step: str, name: str | None = None, checkpoint: int | None = None) -> CheckpointedState:
        """Returns the state of a step as of the last completed checkpoint, or of another retained one.

        What is read does not change when the job goes on, and no rollback makes it untrue. ``name``: that of one of
        several states of the step, as ``clonos state ls`` lists them.

        Raises: StateUnknown: there is no such checkpoint, step or state, or the step has several states and ``name`` is
        missing. StoreFailed.
        """
        from clonos.job.checkpointed_state import CheckpointedState
        from clonos.job.stored_state import StateLocation

        return CheckpointedState(StateLocation(self.store_url, checkpoint), step, name)

    def capture(self, task: str, folder: str | os.PathLike[str] | None = None, timeout: float = 30.0) -> Path:
        """Writes a record of what a task has done since the last completed checkpoint, for ``clonos replay``, while the
        job goes on; returns its folder. The record has the data of the job: its folder is for this user alone.

        ``task``: its name, such as ``count/0``. ``folder``: below which the record is written; None: beside the store.
        ``timeout``: seconds.

        Raises: JobError: the job has no such task, or has ended. CaptureFailed: a task that has something of the epoch
        does not run in this time, the epoch is too large, or the record cannot be written.
        """
        number = self._running_task(task)
        root = epochs_folder(self._name, self._launched.start.store) if folder is None else Path(folder)
        return self._launched.driver.captures.take(number, root, timeout)

    def threads(self, task: str | None = None) -> dict[str, Any]:
        """Returns what the threads of the driver and of all slots are at: stacks, and for a thread that runs the code
        of a task the step and the arguments of your function. A task that is stuck in your code is shown too.

        ``task``: its threads only. The document is that of the API (docs/debugging.md).

        Raises: JobError: the job has no such task, or has ended.
        """
        if task is not None:
            self._running_task(task)
        elif self._launched.driver.result.done():
            raise JobError(f"the job {self._name} has ended, and its threads with it.")
        return dump_document(self._launched.driver.stacks.dump(), task)

    def flame(self, task: str, seconds: float = 5.0) -> dict[str, Any]:
        """Samples what the thread of a task is at, 100 times per second; returns how often each stack was seen, as
        folded stacks. Nothing is measured at other times.

        ``seconds``: up to 15.

        Raises: JobError: the job has no such task, has ended, or ``seconds`` is out of range. StacksMissing: the task
        has no process now, or it does not answer.
        """
        if not 0 < seconds <= FLAME_S_MAX:
            raise JobError(f"flame(seconds={seconds!r:.40}) needs a number above 0 and up to {FLAME_S_MAX:g}.")
        number = self._running_task(task)
        return flame_document(task, self._launched.driver.stacks.sample(number, task, seconds))

    def _running_task(self, task: str) -> TaskId:
        """Returns the number of a task. Raises: JobError: the job has no such task, or has ended."""
        if self._launched.driver.result.done():
            raise JobError(f"the job {self._name} has ended, and with it the task {task!r:.100}.")
        plan = self.plan
        number = plan.task_named(task)
        if number is None:
            names = ", ".join(map(plan.task_name, plan.tasks))
            raise JobError(f"the job {self._name} has no task {task!r:.100}; it has {names}.")
        return number

    @property
    def failed_epoch(self) -> FailedEpoch:
        """Returns what keeps the epoch of a task whose code ends the job, and for how long the end waits for it."""
        return self._launched.driver.failed_epoch

    def summary(self) -> list[str]:
        """Returns the lines about a run that has ended: duration, recoveries, records by step, failed records, and
        where the output is. A run that was stopped before it had begun has no lines."""
        image, status = self._launched.image, self.status()
        if not status.tasks:
            return []
        sent = records_out(self.plan, status.tasks)
        outputs = [*self._launched.start.outputs(), *immediate_outputs(image, status.tasks)]
        return summary_lines(status, time.monotonic() - self._began_s, sent, outputs, self.keyed_steps())

    def steps_with_sinks(self) -> frozenset[str]:
        """Returns the names of the steps whose tasks write to a sink."""
        return steps_with_sinks(self._launched.image.plan)

    def keyed_steps(self) -> frozenset[str]:
        """Returns the names of the steps whose tasks share their records by key."""
        return keyed_steps(self._launched.image.plan)

    def close(self) -> None:
        """Ends the job, if it still runs, and everything that belongs to it. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._adviser is not None:
            self._adviser.stop()
        self._history.close(self.end())
        self._launched.close()
        if self._adviser is not None:
            self._adviser.close()
        for exporter in self._exporters:
            exporter.close()
        self._launched.deployment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handles signals inside the context: the first SIGINT or SIGTERM stops the job with a final checkpoint, the
        second aborts it. Before the tasks run, the first ends the start, unless a savepoint was asked for.

        A third signal has its previous effect. Only the main thread can handle signals; in another thread nothing
        changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        seen = 0

        def handle_signal(number: int, _frame: FrameType | None) -> None:
            nonlocal seen
            seen += 1
            name = signal.Signals(number).name
            if seen == 1:
                logger.warning("%s: stopping %s; a second signal aborts it", name, self._name)
                self._request_stop(drain=True, ends_start=True)
                return
            logger.warning("%s again: aborting %s", name, self._name)
            self._request_stop(drain=False, ends_start=True)
            _restore(before)

        for number in STOP_SIGNALS:
            signal.signal(number, handle_signal)
        try:
            yield
        finally:
            _restore(before)

    def __repr__(self) -> str:
        return f"<Handle of the job {self._name}>"

    def _repr_html_(self) -> str:
        """Returns the status of the job and its tasks as a table: notebooks call this method."""
        return status_html(self.status())

    def _on_progress(self, progress: Progress) -> None:
        """Notes an alarm, and reports a recovery that has ended; runs in the coordinator's thread."""
        self._history.note(progress)
        for listener in self._listeners:
            listener(progress)
        if isinstance(progress, Alarm):
            fields = " ".join(f"{name}={value}" for name, value in progress.fields)
            self._alarms.append(f"{progress.text} {fields}".rstrip())
            self._alarms_count += not progress.is_routine
            if AT_WORK in progress.text:
                self._last_hang = progress.text
        elif isinstance(progress, RecoveryEvent) and progress.milestone is Milestone.REPLAYED:
            # An exception that comes back ends the job with a message of its own.
            is_quiet = progress.cause.startswith("it raised") or progress.cause == MOVE
            level = logging.INFO if is_quiet else logging.WARNING
            sentence_of = partial(recovery_sentence, TaskId(progress.task), progress.incarnation)
            sentence = self._launched.driver.ask(sentence_of)
            logger.log(
                level, "%s", sentence, extra={"task": progress.name, "incarnation": view_name(progress.incarnation)}
            )


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
