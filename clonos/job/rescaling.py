"""Other numbers of tasks of a running job: the request, and what became of it.

The coordinator decides and changes (protocol 6.12). This is the way to it from any thread of the driver.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Final

from clonos.core.coordinator.coordinator import Coordinator
from clonos.core.coordinator.coordinator_events import RescaleRequested
from clonos.core.coordinator.coordinator_state import JobPhase
from clonos.core.coordinator.rescale import BESIDE
from clonos.core.coordinator.rescale_machine import Cutting, State, Steady, Switching
from clonos.core.model.errors import JobError
from clonos.core.model.plan import Plan
from clonos.job.continuing.start_widths import WidthsRefused, by_vertex
from clonos.job.status_view import rescale_phase
from clonos.operators.job_image import JobImage
from clonos.status import REQUESTS_PER_DRIVER, RESCALE_ENDED_TEXTS
from clonos_standby.driver.driver import Driver

logger = logging.getLogger("clonos.run")

LOOK_EVERY_S: Final = 0.02
BEFORE_TASKS_RUN: Final = (JobPhase.IDLE, JobPhase.LISTENING, JobPhase.STARTING)


class RescaleRefused(JobError):
    """A running job goes on as before: the change was refused, or given up before anything had changed."""

    job: str
    reason: str

    def __str__(self) -> str:
        return f"job {self.job} goes on as before: {self.reason}."


class RescaleBusy(RescaleRefused):
    """The change was refused because another one is under way: once that has ended, it can be asked for again."""


class RescaleInterrupted(RescaleRefused):
    """The change was given up because a task failed meanwhile: once that has recovered, it can be asked for again."""


class RescaleEnded(RescaleRefused):
    """The job ended before all of its tasks ran with the change. ``reason``: what became of the change."""

    def __str__(self) -> str:
        return f"job {self.job} has ended: {self.reason}."


@dataclass(frozen=True, slots=True)
class Rescaled:
    """Change of widths or places that is done. ``widths``: the number of tasks of each step now. ``checkpoint``: the
    one at which they changed; 0 if nothing had to. ``duration_s``: seconds from the request until all tasks ran again.
    """

    widths: dict[str, int]
    checkpoint: int
    duration_s: float


class RequestedWidths:
    """Requests for other widths of one job, from any thread; one at a time."""

    def __init__(self, image: JobImage, driver: Driver) -> None:
        self._image, self._driver = image, driver
        self._job = image.plan.job_name
        self._requests = itertools.count(1)
        self._lock = threading.Lock()

    def named(self, widths: object, tasks: dict[str, int]) -> dict[str, int]:
        """Returns the numbers of tasks of a call with steps in a dict, as keywords, or both.

        Raises: RescaleRefused: they are no dict, or a step has two numbers.
        """
        if widths is not None and not isinstance(widths, Mapping):
            expected = 'steps and their numbers of tasks are given as rescale(count=4) or rescale({"count": 4})'
            raise RescaleRefused(self._job, f"{expected}, and not as {widths!r:.100}")
        given: dict[str, int] = dict(widths or {})
        for step in given.keys() & tasks.keys():
            if given[step] != tasks[step]:
                raise RescaleRefused(self._job, f'"{step}" cannot have {given[step]} tasks and {tasks[step]}')
        return given | tasks

    def change(self, widths: Mapping[str, int], timeout: float | None, *, is_placed_anew: bool = False) -> Rescaled:
        """Changes the numbers of tasks of steps, and waits until the tasks run. ``timeout``: seconds.
        ``is_placed_anew``: all tasks are spread over the slots, also if no number changes.

        Raises: RescaleRefused: it was refused or given up. RescaleEnded: the job has ended. TimeoutError: the change
        takes longer, and goes on; or the tasks do not run yet, and nothing was requested, as the text says.
        """
        began_s = time.monotonic()
        deadline_s = None if timeout is None else began_s + timeout
        request = self._begin(widths, deadline_s, is_placed_anew)
        return self._outcome(request, began_s, deadline_s)

    def begin(self, widths: Mapping[str, int], *, is_placed_anew: bool = False) -> tuple[int, dict[str, int]]:
        """Begins a change; returns the number of the request, 0 if nothing has to change, and how many tasks each step
        will have. The log says when the change is done, or why it was given up. Raises: as ``change``."""
        began_s = time.monotonic()
        request = self._begin(widths, began_s, is_placed_anew)
        if request:
            arguments = request, began_s, tuple(widths)
            threading.Thread(target=self._log_outcome, args=arguments, name="rescale", daemon=True).start()
        plan = self._driver.ask(_plan)
        return request, self._by_step(plan.with_widths(self._by_vertex(widths)))

    def _begin(self, widths: Mapping[str, int], deadline_s: float | None, is_placed_anew: bool) -> int:
        """Requests a change; returns the number of the request, 0 if nothing has to change."""
        wanted = self._by_vertex(widths)
        while self._driver.ask(lambda coordinator: coordinator.phase) in BEFORE_TASKS_RUN:
            self._wait(deadline_s, "do not run yet, so nothing was requested")
        with self._lock:
            if self._driver.ask(lambda coordinator: not isinstance(coordinator.rescale, Steady)):
                raise RescaleBusy(self._job, BESIDE)
            plan = self._driver.ask(_plan)
            now = plan.widths
            if not is_placed_anew and wanted.items() <= now.items():
                return 0
            request = self._driver.ask(lambda each: each.term) * REQUESTS_PER_DRIVER + next(self._requests)
            self._driver.post(RescaleRequested(request, tuple(sorted(wanted.items())), is_placed_anew=is_placed_anew))
            while not self._driver.ask(lambda coordinator: _has_answered(coordinator, request)):
                self._wait(None, "")
        self._check(request)
        return request

    def _by_vertex(self, widths: Mapping[str, int]) -> dict[str, int]:
        """Returns numbers of tasks by the name of the vertex. Raises: RescaleRefused: there is no such step."""
        for step, tasks in widths.items():
            if type(tasks) is not int:
                raise RescaleRefused(self._job, f"the number of tasks of {step} is {tasks!r}, and not an int")
        try:
            return by_vertex(self._image, widths.items())
        except WidthsRefused as error:
            raise RescaleRefused(self._job, "; ".join(error.reasons)) from None

    def _by_step(self, plan: Plan) -> dict[str, int]:
        """Returns the number of tasks of each step."""
        vertices = zip(self._image.vertices, plan.vertices, strict=True)
        return {node.step: vertex.parallelism for image, vertex in vertices for node in image.nodes}

    def _check(self, request: int) -> State:
        """Returns how far a change is. Raises: RescaleRefused: it was given up."""
        found, refusals, is_interrupted = self._driver.ask(
            lambda each: (each.rescale, dict(each.rescale_refusals), each.is_rescale_interrupted(request))
        )
        if refusal := refusals.get(request):
            kind = RescaleInterrupted if is_interrupted else RescaleBusy if refusal == BESIDE else RescaleRefused
            raise kind(self._job, refusal)
        return found

    def _outcome(self, request: int, began_s: float, deadline_s: float | None) -> Rescaled:
        checkpoint, has_ended = 0, self._driver.result.done()
        while request and not isinstance(found := self._check(request), Steady) and found.request == request:
            if has_ended:
                raise RescaleEnded(self._job, RESCALE_ENDED_TEXTS[rescale_phase(found)])
            match found:
                case Cutting(checkpoint=named) if named:
                    checkpoint = named
                case Switching(divided=metadata) if metadata is not None:
                    checkpoint = metadata.checkpoint
            self._pause(deadline_s, "have not changed in time; the change goes on")
            has_ended = self._driver.result.done()
        return Rescaled(self._by_step(self._driver.ask(_plan)), checkpoint, time.monotonic() - began_s)

    def _log_outcome(self, request: int, began_s: float, names: tuple[str, ...]) -> None:
        try:
            done = self._outcome(request, began_s, None)
        except RescaleRefused as error:
            logger.error("%s", error)
        else:
            named = self._driver.ask(_plan).widths | done.widths
            now = ", ".join(f"{name} {named[name]}" for name in names)
            what = f"has these numbers of tasks: {now}" if now else "has all of its tasks placed anew"
            logger.warning("%s %s, after %.1f s", self._job, what, done.duration_s)

    def _wait(self, deadline_s: float | None, state: str) -> None:
        """Waits a moment before the change has begun. Raises: RescaleEnded: the job has ended. TimeoutError."""
        if self._driver.result.done():
            raise RescaleEnded(self._job, "nothing was changed")
        self._pause(deadline_s, state)

    def _pause(self, deadline_s: float | None, state: str) -> None:
        """Waits a moment. ``state``: what holds of the tasks, for the error after the deadline.

        Raises: TimeoutError."""
        if deadline_s is not None and time.monotonic() >= deadline_s:
            raise TimeoutError(f"the tasks of {self._job} {state}")
        wait([self._driver.result], LOOK_EVERY_S)


def splits_of(image: JobImage, members: tuple[int, ...]) -> int | None:
    """Returns the number of splits of the source in a group, if it finds no new ones."""
    sources = [_source_with_splits(image, number) for number in members]
    return next((len(image.splits[source]) for source in sources if source is not None), None)


def _source_with_splits(image: JobImage, number: int) -> str | None:
    """Returns the step of the source of a vertex, if it finds no new splits."""
    vertex = image.plan.vertices[number]
    if not vertex.is_source or vertex.is_watching:
        return None
    return next((node.step for node in image.vertices[number].nodes if node.step in image.splits), None)


def _has_answered(coordinator: Coordinator, request: int) -> bool:
    return coordinator.rescale.request == request or request in coordinator.rescale_refusals


def _plan(coordinator: Coordinator) -> Plan:
    return coordinator.plan
