"""Job as its API sees it: a protocol, and its implementation over the handle of a driver."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from clonos.api.graph import JobGraph
from clonos.config import describe
from clonos.connectors.secrets import masked
from clonos.core.coordinator.coordinator_effects import JobDone
from clonos.core.model.errors import ClonosError, JobError
from clonos.io.system.wall_clock import wall_ns
from clonos.job.handle import Handle
from clonos.job.job_status import STATUS_OF_ENDING, JobStatus
from clonos.job.results import error_of
from clonos.job.run_history.history_lines import HistoryLine, lines_of_history
from clonos.operators.chain import InputShape
from clonos.operators.job_image import JobImage
from clonos.server.job_api.documents import PlanDocument, PlanEdge, StepDocument, VertexDocument
from clonos.server.job_api.key_courses import CourseUnknown, course_of_key
from clonos.status import CheckpointState, Status
from clonos_standby.driver.driver import JobEnd, Progress

logger = logging.getLogger("clonos.run")

PEEK_S: Final = 3.0
CAPTURE_S: Final = 20.0
"""Seconds that a look at the rows of a step waits for them."""

PEEKED_CHARACTERS_MAX: Final = 2_000


class RequestDenied(JobError):
    """A request that the job cannot fulfil now. ``code`` is for programs, ``http_status`` the answer's status."""

    code: str
    message: str
    http_status: int = 409

    def __str__(self) -> str:
        return self.message


class JobSource(Protocol):
    """Job behind an API. Methods may be called in any thread."""

    @property
    def job_id(self) -> str:
        """Id of the job."""

    @property
    def name(self) -> str:
        """Name of the job."""

    @property
    def started_ns(self) -> int:
        """Wall clock when the job was started."""

    @property
    def allows_injection(self) -> bool:
        """Whether its tasks may be killed on request."""

    @property
    def has_savepoints(self) -> bool:
        """Whether it takes savepoints."""

    def plan(self) -> PlanDocument:
        """Returns the plan."""

    def options(self) -> Mapping[str, Any]:
        """Returns the options, without passwords."""

    def outputs(self) -> list[str]:
        """Returns where the output is."""

    def status(self) -> Status:
        """Returns the state of the job now."""

    def checkpoints(self) -> tuple[CheckpointState, ...]:
        """Returns the last checkpoints, oldest first."""

    def history(self) -> list[HistoryLine]:
        """Returns the lines of the history, oldest first. Raises: StoreFailed."""

    def ended(self) -> tuple[JobStatus, str | None] | None:
        """Returns the final status and the error, if any; None while the job runs."""

    def is_over(self) -> bool:
        """Returns whether the job has ended with all its processes."""

    def is_cancelling(self) -> bool:
        """Returns whether the end of the job without a final checkpoint was requested."""

    def is_stopping(self) -> bool:
        """Returns whether the end of the job was requested."""

    def listen(self, listener: Callable[[Progress], None]) -> None:
        """Calls ``listener`` at each alarm and milestone, in a thread that it must not hold up."""

    def stop(self, drain: bool, savepoint: str | None) -> None:
        """Requests the end of the job."""

    def savepoint(self, path: str | None) -> str | None:
        """Requests a savepoint; returns its place. Raises: RequestDenied."""

    def rescale(self, widths: Mapping[str, int], is_placed_anew: bool) -> tuple[int, dict[str, int]]:
        """Requests other numbers of tasks of steps, and that all are placed anew; returns the number of the
        request, and what each step will have. Raises: RequestDenied."""

    def peek(self, step: str, count: int) -> list[str]:
        """Returns the next rows that a step emits, as texts. Raises: RequestDenied."""

    def capture(self, task: str, folder: str | None) -> str:
        """Writes a record of a task's epoch; returns its folder. Raises: RequestDenied."""

    def key(self, step: str, key: str) -> dict[str, Any]:
        """Returns the document of what a key has gone through at a step. Raises: RequestDenied."""

    def threads(self, task: str | None) -> dict[str, Any]:
        """Returns the document of a thread dump. Raises: RequestDenied."""

    def flame(self, task: str, seconds: float) -> dict[str, Any]:
        """Samples a task; returns the document of a flame graph. Raises: RequestDenied."""

    def kill(self, task: str) -> list[str]:
        """Kills the process of a task by SIGKILL. Returns all tasks of the process. Raises: RequestDenied."""


class HandleSource:
    """Job of this driver."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.started_ns = wall_ns()
        self.allows_injection = handle.settings.run.allow_injection
        self.has_savepoints = True
        self._is_cancelling = False

    @property
    def job_id(self) -> str:
        """Returns the id of the job in its store."""
        return self._handle.job_id

    @property
    def name(self) -> str:
        """Returns the name of the job."""
        return self._handle.graph.name

    def plan(self) -> PlanDocument:
        """Returns the plan."""
        return plan_document(self._handle.graph, replace(self._handle.image, plan=self._handle.plan))

    def options(self) -> Mapping[str, Any]:
        """Returns the options; passwords in URLs are masked."""
        return {key: _shown(value) for key, value in describe(self._handle.settings).items()}

    def outputs(self) -> list[str]:
        """Returns where the output of transactional sinks is."""
        return [masked(output) for output in self._handle.outputs()]

    def status(self) -> Status:
        """Returns the state of the job now."""
        return self._handle.status()

    def checkpoints(self) -> tuple[CheckpointState, ...]:
        """Returns the last checkpoints, oldest first."""
        return self._handle.checkpoints()

    def history(self) -> list[HistoryLine]:
        """Returns the lines of the history, oldest first. Raises: StoreFailed."""
        return list(lines_of_history(self._handle.history(), has_ended=False))

    def ended(self) -> tuple[JobStatus, str | None] | None:
        """Returns the final status and the error, if any; None while the job runs."""
        end: JobEnd | None = self._handle.end()
        if end is None:
            return None
        if isinstance(end, JobDone):
            return STATUS_OF_ENDING[end.ending], None
        return JobStatus.FAILED, str(error_of(self.name, end))

    def is_cancelling(self) -> bool:
        """Returns whether the end of the job without a final checkpoint was requested."""
        return self._is_cancelling

    def is_stopping(self) -> bool:
        """Returns whether the end of the job was requested."""
        return self._handle.is_stopping

    def is_over(self) -> bool:
        """Returns whether the job has ended with all its processes."""
        return self._handle.is_over

    def listen(self, listener: Callable[[Progress], None]) -> None:
        """Calls ``listener`` at each alarm and milestone, in the coordinator's thread."""
        self._handle.listen(listener)

    def stop(self, drain: bool, savepoint: str | None) -> None:
        """Requests the end of the job.

        Raises: RequestDenied: no savepoint can be written there.
        """
        try:
            self._handle.stop(drain, savepoint=savepoint)
        except ClonosError as error:
            raise RequestDenied("savepoint_refused", str(error)) from None
        self._is_cancelling |= not drain

    def savepoint(self, path: str | None) -> str:
        """Requests a savepoint; returns its place. The log says when it is written, or why it is not.

        Raises: RequestDenied: no savepoint can be written there.
        """
        try:
            return self._handle.begin_savepoint(path)
        except ClonosError as error:
            raise RequestDenied("savepoint_refused", str(error)) from None

    def rescale(self, widths: Mapping[str, int], is_placed_anew: bool) -> tuple[int, dict[str, int]]:
        """Requests other numbers of tasks of steps, and that all are placed anew; returns the number of the request, 0
        if there is nothing to change, and what each step will have. The log says when it has, or why it has not.

        Raises: RequestDenied: the steps cannot have them.
        """
        try:
            return self._handle.begin_rescale(widths, is_placed_anew=is_placed_anew)
        except (ClonosError, TimeoutError) as error:
            raise RequestDenied("rescale_refused", str(error)) from None

    def peek(self, step: str, count: int) -> list[str]:
        """Returns the next rows that a step emits, each as its ``repr``.

        Raises: RequestDenied: the job has no such step.
        """
        try:
            rows = self._handle.peek(step, count, PEEK_S)
        except JobError as error:
            raise RequestDenied("step_not_found", str(error), 404) from None
        return [
            f"{text[:PEEKED_CHARACTERS_MAX]}..." if len(text) > PEEKED_CHARACTERS_MAX else text
            for text in map(repr, rows)
        ]

    def capture(self, task: str, folder: str | None) -> str:
        """Writes a record of what a task has done since the last completed checkpoint; returns its folder.

        Raises: RequestDenied: there is no such task, or it cannot be captured now.
        """
        try:
            return str(self._handle.capture(task, folder, CAPTURE_S))
        except ClonosError as error:
            raise RequestDenied("capture_refused", str(error)) from None

    def key(self, step: str, key: str) -> dict[str, Any]:
        """Returns the document of what a key has gone through at a step since the last checkpoint.

        Raises: RequestDenied: there is no such step or key, or its task cannot be captured or replayed now.
        """
        try:
            return course_of_key(self._handle, step, key)
        except CourseUnknown as error:
            code, status = ("key_not_found", 404) if error.is_missing else ("key_not_shown", 409)
            raise RequestDenied(code, str(error), status) from None
        except ClonosError as error:
            raise RequestDenied("key_not_shown", str(error)) from None

    def threads(self, task: str | None) -> dict[str, Any]:
        """Returns the document of a thread dump.

        Raises: RequestDenied: there is no such task.
        """
        try:
            return self._handle.threads(task)
        except ClonosError as error:
            raise RequestDenied("threads_not_shown", str(error)) from None

    def flame(self, task: str, seconds: float) -> dict[str, Any]:
        """Samples a task; returns the document of a flame graph.

        Raises: RequestDenied: there is no such task, or it cannot be sampled now.
        """
        try:
            return self._handle.flame(task, seconds)
        except ClonosError as error:
            raise RequestDenied("task_not_sampled", str(error)) from None

    def kill(self, task: str) -> list[str]:
        """Kills the process of a task by SIGKILL. Returns all tasks of the process.

        Raises: RequestDenied: injection is off, there is no such task, or its process is not on this machine.
        """
        if not self.allows_injection:
            text = "tasks can be killed only in a job with the option allow_injection."
            raise RequestDenied("injection_not_allowed", text, 403)
        status = self.status()
        found = next((each for each in status.tasks if each.name == task), None)
        if found is None:
            raise RequestDenied("task_not_found", f"the job {self.name} has no task {task!r:.100}.", 404)
        slot = next((each for each in status.slots if each.slot == found.slot), None)
        if slot is None or slot.pid <= 1:
            raise RequestDenied("task_has_no_process", f"the task {task} has no process now: it is waiting for a slot.")
        if slot.host not in ("localhost", socket.gethostname(), socket.getfqdn()):
            raise RequestDenied(
                "task_on_another_host", f"the task {task} runs on {slot.host}, which cannot be reached here."
            )
        if slot.pid == os.getpid():
            raise RequestDenied(
                "task_has_no_process", f"the task {task} is a thread of the driver, which cannot be killed."
            )
        try:
            os.kill(slot.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError) as error:
            raise RequestDenied(
                "task_has_no_process", f"the process of the task {task} is gone: {error.strerror}."
            ) from None
        return [each.name for each in status.tasks if each.slot == found.slot]


def plan_document(graph: JobGraph, image: JobImage) -> PlanDocument:
    """Returns the plan of a compiled job."""
    plan = image.plan
    vertex_of = {node.step: vertex.name for vertex in image.vertices for node in vertex.nodes}
    keyed = {
        vertex.nodes[each.node].step
        for vertex in image.vertices
        for each in vertex.inputs
        if each.form is not InputShape.PLAIN
    }
    steps: list[StepDocument] = []
    for step in graph.steps:
        before = vertex_of.get(graph.steps[step.inputs[0].step].name, "") if step.inputs else ""
        vertex = vertex_of.setdefault(step.name, step.name if _has_vertex(image, step.name) else before)
        tasks = next((each.parallelism for each in plan.vertices if each.name == vertex), step.parallelism or 1)
        has_keys = step.name in keyed
        steps.append(StepDocument(name=step.name, kind=step.kind, parallelism=tasks, vertex=vertex, keyed=has_keys))
    external = {edge.source for edge in plan.edges if edge.target is None}
    vertices = [
        VertexDocument(
            name=vertex.name,
            steps=[step.name for step in steps if step.vertex == vertex.name] or [vertex.name],
            tasks=vertex.parallelism,
            is_source=vertex.is_source,
            has_sink=vertex.is_transactional or number in external,
        )
        for number, vertex in enumerate(plan.vertices)
    ]
    edges = [
        PlanEdge(
            source=plan.vertices[edge.source].name,
            target=plan.vertices[edge.target].name,
            exchange=edge.partitioning.value,
            step=edge.giver or "",
        )
        for edge in plan.edges
        if edge.target is not None
    ]
    return PlanDocument(steps=steps, vertices=vertices, edges=edges)


def _has_vertex(image: JobImage, name: str) -> bool:
    return any(vertex.name == name for vertex in image.plan.vertices)


def _shown(value: object) -> object:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, tuple):
        return [masked(str(each)) for each in value]
    return value
