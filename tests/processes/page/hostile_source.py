"""A job all of whose texts are scripts, and some far too long, without processes: what the page makes of texts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from clonos.core.coordinator.coordinator_effects import Alarm
from clonos.core.model.progress import TaskPhase
from clonos.io.system.wall_clock import wall_ns
from clonos.job.run_history.history_lines import HistoryLine
from clonos.server.job_api.app import job_app
from clonos.server.job_api.documents import JobStatus, PlanDocument, PlanEdge, StepDocument, VertexDocument
from clonos.server.job_api.guard import Role, role_by_token
from clonos.server.job_api.job_source import RequestDenied
from clonos.server.job_api.job_watch import JobWatch
from clonos.server.job_api.log_ring import LogRing
from clonos.server.job_api.server_thread import LOOPBACK, ServerThread, listen_tcp
from clonos.status import (
    CheckpointState,
    Phase,
    RecoveryState,
    SavepointProgress,
    ScalingAdvice,
    SlotState,
    Status,
    TaskState,
)
from clonos_standby.driver.driver import Progress

SCRIPT = "<img src=x onerror=window.taken=1><script>window.taken=1</script>\"'onload=window.taken=1 javascript:alert(1)"
LONG = "a" * 300
TOKEN = "t0ken"
MS = 1_000_000


@dataclass
class HostileSource:
    """A job with two vertices, a recovery in progress and an ended one, and an error at the end."""

    job_id: str = "job<b>"
    name: str = SCRIPT
    started_ns: int = field(default_factory=wall_ns)
    allows_injection: bool = True
    has_savepoints: bool = True
    error: str | None = None

    def plan(self) -> PlanDocument:
        """A plan whose names are scripts."""
        names = [f"read{SCRIPT}", f"count{LONG}"]
        return PlanDocument(
            steps=[StepDocument(name=name, kind=SCRIPT, parallelism=2, vertex=name, keyed=True) for name in names],
            vertices=[
                VertexDocument(name=name, steps=[name, SCRIPT], tasks=2, is_source=not number, has_sink=bool(number))
                for number, name in enumerate(names)
            ],
            edges=[PlanEdge(source=names[0], target=names[1], exchange=SCRIPT, step=names[0])],
        )

    def options(self) -> Mapping[str, Any]:
        """Options with scripts as names and values."""
        return {SCRIPT: SCRIPT, "store": LONG}

    def outputs(self) -> list[str]:
        """Where the output is not."""
        return [SCRIPT, LONG]

    def status(self) -> Status:
        """The state, always the same."""
        tasks = tuple(
            TaskState(
                name=f"{vertex.name}/{index}",
                incarnation=(1 << 32) + 2,
                slot=1 << 63,
                pid=4321,
                domain=SCRIPT,
                phase=TaskPhase.REPLAYING if vertex.has_sink else TaskPhase.LIVE,
                counters={"records_in": 12, "backlog_elements": 3, "watermark_ns": self.started_ns},
                standbys=1,
                keepers=1,
                hot_key=SCRIPT,
                losses_survived=1,
            )
            for vertex in self.plan().vertices
            for index in range(2)
        )
        reached = {"detected": self.started_ns, "view": self.started_ns + 2 * MS, "gathered": self.started_ns + 9 * MS}
        ended = {**reached, "replayed": self.started_ns + 40 * MS, "caught_up": self.started_ns + 60 * MS}
        return Status(
            job=SCRIPT,
            phase=Phase.RUNNING,
            slots=(SlotState(1 << 63, 4321, SCRIPT, LONG),),
            tasks=tasks,
            recoveries=(
                RecoveryState(tasks[0].name, 1, 2, SCRIPT, ended, 5, 3, 2),
                RecoveryState(tasks[2].name, 1, 2, LONG, reached),
            ),
            scaling=(ScalingAdvice(SCRIPT, 2, 4, f"2 tasks to 4: {LONG}"),),
            savepoints=(SavepointProgress(LONG, 3, 10, 12.0, f"writing the savepoint {SCRIPT}: 3 of 10 objects"),),
        )

    def checkpoints(self) -> tuple[CheckpointState, ...]:
        """One of each kind."""
        done = CheckpointState(1, self.started_ns, self.started_ns + MS, False, 123_456)
        abandoned = CheckpointState(2, self.started_ns, None, False)
        return done, abandoned, CheckpointState(3, self.started_ns, None, True)

    def history(self) -> list[HistoryLine]:
        """A line of each kind of text."""
        began_ns = self.started_ns - MS
        again = HistoryLine(self.started_ns, "alarm", SCRIPT, SCRIPT, 1)
        recovery = HistoryLine(self.started_ns, "recovery", f"{SCRIPT} is live", SCRIPT, 1, SCRIPT, began_ns)
        return [HistoryLine(self.started_ns, "start", LONG, SCRIPT, 1), recovery, again, again]

    def ended(self) -> tuple[JobStatus, str | None] | None:
        """The end, if it has one."""
        return None if self.error is None else (JobStatus.FAILED, self.error)

    def is_over(self) -> bool:
        """Whether it has an end."""
        return self.error is not None

    def is_cancelling(self) -> bool:
        """Never."""
        return False

    def is_stopping(self) -> bool:
        """Never."""
        return False

    def listen(self, listener: Callable[[Progress], None]) -> None:
        """Raises alarms."""
        listener(Alarm(f"{SCRIPT} could not be committed; trying again", ((SCRIPT, LONG),)))

    def stop(self, drain: bool, savepoint: str | None) -> None:
        """Does nothing."""

    def savepoint(self, path: str | None) -> None:
        """Does nothing."""

    def rescale(self, widths: Mapping[str, int], is_placed_anew: bool) -> tuple[int, dict[str, int]]:
        """Refuses with a script."""
        raise RequestDenied("rescale_refused", SCRIPT)

    def capture(self, task: str, folder: str | None) -> str:
        """A folder whose name is hostile."""
        return SCRIPT

    def key(self, step: str, key: str) -> dict[str, Any]:
        """A conversation whose texts are hostile."""
        exchange = [{"role": SCRIPT, "text": LONG}, {"role": "user", "text": SCRIPT}]
        state = [{"name": SCRIPT, "text": SCRIPT, "messages": exchange}]
        model = {"service": SCRIPT, "kind": "model", "effect": False, "answered": True, "model": SCRIPT}
        asked = {
            **model,
            "messages": exchange,
            "text": SCRIPT,
            "tool_calls": [LONG],
            "prompt_tokens": 9,
            "cost": 0.25,
            "currency": SCRIPT,
        }
        tool = {"service": SCRIPT, "kind": "call", "effect": True, "answered": True, "request": LONG, "error": SCRIPT}
        passage = {
            "step": step,
            "event": "record",
            "key": SCRIPT,
            "records": [{"number": 7, "record": SCRIPT}],
            "before": [],
            "after": state,
            "calls": [asked, tool],
            "calls_as_before": 2,
            "result": LONG,
            "error": SCRIPT,
            "awaits": SCRIPT,
            "open": True,
            "notes": [SCRIPT],
        }
        event = {**passage, "event": "event", "calls": [], "result": None, "error": None, "awaits": None}
        return {
            "job": SCRIPT,
            "task": SCRIPT,
            "epoch": 3,
            "steps": [passage, event, {**event, "event": "timer", "records": []}],
            "states": [{"step": step, "state": state}],
            "calls": 2,
            "prompt_tokens": 9,
            "completion_tokens": 0,
            "costs": {SCRIPT: 0.25},
            "error": SCRIPT,
            "open_call": SCRIPT,
            "as_recorded": False,
            "notes": [LONG],
        }

    def threads(self, task: str | None) -> dict[str, Any]:
        """A thread whose texts are hostile."""
        argument = {"name": "record", "value": SCRIPT}
        thread = {"name": SCRIPT, "task": SCRIPT, "step": SCRIPT, "is_waiting": False, "frames": [SCRIPT, LONG]}
        return {
            "processes": [
                {"pid": 7, "host": SCRIPT, "is_driver": False, "threads": [{**thread, "arguments": [argument]}]}
            ],
            "silent": [SCRIPT],
        }

    def flame(self, task: str, seconds: float) -> dict[str, Any]:
        """Stacks whose functions have hostile names."""
        return {"task": task, "samples": 4, "folded": f"a;{SCRIPT} 3\na;{LONG} 1\n"}

    def peek(self, step: str, count: int) -> list[str]:
        """Rows with scripts."""
        return [SCRIPT, LONG][:count]

    def kill(self, task: str) -> list[str]:
        """Kills nothing."""
        return [task]


@contextmanager
def hostile_page(error: str | None = None) -> Iterator[str]:
    """The page of the hostile job; gives its URL."""
    logs = LogRing()
    for text in (SCRIPT, LONG, f"[{'a/0'}] {SCRIPT}"):
        logs.handle(logging.LogRecord(SCRIPT, logging.WARNING, "", 0, text, None, None))
    watch = JobWatch(HostileSource(error=error), logs)
    listener = listen_tcp(LOOPBACK, 0)
    port = listener.getsockname()[1]
    watch.start()
    with closing(ServerThread(job_app(watch, role_by_token({TOKEN: Role.WRITE})), listener)), closing(watch):
        yield f"http://{LOOPBACK}:{port}/#token={TOKEN}"
