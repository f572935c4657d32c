"""Slice of a run of conversations: one job on real processes, whose tasks are killed one after the other.

A kill hits the process that has reached a fault point, or a process whose calls are under way. The next one comes when
all tasks run again and the server has sent a few more replies. At the end the oracle reads both outputs, and the
server says what it was asked.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from clonos.core.model.errors import ClonosError
from clonos.io.process.fault_points import FaultPoint, FaultPointReached
from clonos.status import Phase
from clonos_chaos.project.conversing.talk_server import TalkServer, talk_server
from clonos_chaos.project.conversing.talking_job import (
    ASKING,
    TABLE,
    WRITING,
    ModelClient,
    judge_talks,
    talking,
    turns_of,
)
from clonos_chaos.project.slices import SliceFailed
from clonos_chaos.real.fault_point_server import FaultPointServer
from clonos_chaos.real.fault_triggers import is_whole
from clonos_chaos.scenario.scenario_gate import SOURCES, Gate

CONVERSATIONS: Final = 200
TURNS: Final = 2
STANDBYS: Final = 1
REPLIES_BETWEEN: Final = 4
LIMIT_S: Final = 120.0
"""Time in which the tasks run again, and the job ends after its last reply."""

AHEAD: Final = 32
"""Records, of texts and approvals, that are in front of the step that asks."""

REACHED_S: Final = 10.0
LOOK_EVERY_S: Final = 0.02
REPEATED_MAX: Final = 2
"""Calls of an open record that a death repeats at most: the one under way, and one whose outcome had not left."""


@dataclass(frozen=True, slots=True)
class TalkKill:
    """Moment of a kill. ``point``: None is while calls are under way. ``step``: whose task is killed."""

    point: FaultPoint | None
    step: str = ASKING

    @property
    def is_of_successor(self) -> bool:
        """Whether only a task that takes over reaches the point."""
        return self.point in (FaultPoint.START, FaultPoint.LOG_END, FaultPoint.LIVE, FaultPoint.SINK_OPENED)

    def __str__(self) -> str:
        return f"{self.step}, {f'at {self.point}' if self.point else 'with calls under way'}"


KILLS: Final = (
    *(TalkKill(None) for _ in range(4)),
    *(
        TalkKill(point)
        for point in (
            *(FaultPoint.CALL, FaultPoint.CALLED, FaultPoint.INTENT, FaultPoint.EMISSION, FaultPoint.ALIGNED),
            *(FaultPoint.SNAPSHOT_BEGUN, FaultPoint.SNAPSHOT_WRITTEN),
            *(FaultPoint.START, FaultPoint.LOG_END, FaultPoint.LIVE),
        )
    ),
    *(
        TalkKill(point, WRITING)
        for point in (
            *(FaultPoint.EMISSION, FaultPoint.ALIGNED, FaultPoint.SNAPSHOT_WRITTEN, FaultPoint.START, FaultPoint.LIVE),
        )
    ),
    *(TalkKill(point, TABLE) for point in (FaultPoint.SINK_OPENED, FaultPoint.SINK_WRITTEN)),
)
"""Kills in turn."""

POINTS: Final = ",".join(sorted({str(kill.point) for kill in KILLS if kill.point is not None}))


def kills_of(seed: int, count: int) -> list[TalkKill]:
    """Returns ``count`` kills, every kind in each round, in an order by the seed."""
    found: list[TalkKill] = []
    rng = Random(seed)
    while len(found) < count:
        found += rng.sample(KILLS, len(KILLS))
    return found[:count]


class TalkRecord(msgspec.Struct):
    """Results of a slice. ``kills``: how many of each. ``missed``: whose moment did not come. ``requests``: of models,
    of which ``refused`` were failed or limited by the server; it has sent ``paid`` replies. ``logged``: replies that
    are in the outputs. ``repeated``: those that are not. ``refunded_again``: refunds of an order after the first."""

    number: int
    client: str = ""
    capacity: int = 1
    kills: dict[str, int] = {}
    missed: int = 0
    conversations: int = 0
    requests: int = 0
    refused: int = 0
    paid: int = 0
    logged: int = 0
    repeated: int = 0
    refunds: int = 0
    refunded_again: int = 0
    rollbacks: int = 0
    lost: int = 0
    duplicated: int = 0
    contradicted: int = 0
    examples: dict[str, list[str]] = {}
    failure: str = ""
    seconds: float = 0.0

    @property
    def made(self) -> int:
        """Returns the number of kills."""
        return sum(self.kills.values())

    @property
    def is_good(self) -> bool:
        """Returns whether both outputs are right and equal, no order was refunded twice, and no call was repeated that
        a death does not explain."""
        wrong = self.lost + self.duplicated + self.contradicted + self.refunded_again + self.rollbacks
        return not self.failure and not wrong and self.repeated <= self.made * REPEATED_MAX * self.capacity


class TalkSlice:
    """One job in a folder, whose tasks get these kills."""

    def __init__(
        self,
        number: int,
        folder: Path,
        kills: Sequence[TalkKill],
        client: ModelClient,
        *,
        capacity: int = 1,
        conversations: int = CONVERSATIONS,
        turns: int = TURNS,
    ) -> None:
        self.record = TalkRecord(number, client=client, capacity=capacity, conversations=conversations)
        self._folder, self._kills, self._client = folder, kills, client
        self._given = turns_of(conversations // SOURCES, turns)
        self._replies = 2 * turns * conversations
        self._rng = Random(number)
        self._handle: Any = None

    def run(self, on_kill: Callable[[TalkRecord], bool]) -> TalkRecord:
        """Runs the slice and judges it. ``on_kill``: called after each kill, returns whether to go on."""
        began_s = time.monotonic()
        gate = self._gate = Gate(self._folder)
        with FaultPointServer() as self._points, talk_server(self.record.number) as server:
            job = talking(self._folder, server.url, self._client, self._given, self.record.capacity)
            try:
                with job.start(
                    slots="process",
                    store=self._folder / "store",
                    standbys=STANDBYS,
                    spare_slots=2,
                    checkpoint_every="400ms",
                    failures_per_epoch_max=1_000,
                    fault_points=f"{self._points.address}/{POINTS}",
                ) as self._handle:
                    for kill in self._kills:
                        if not self._perform(kill, server) or not on_kill(self.record):
                            break
                    self._await(lambda: self._is_over(server), server, "the conversations do not end")
                    gate.end()
                    self._end(server)
            except (ClonosError, TimeoutError) as error:
                self.record.failure = str(error)
            self._judge(server)
        self.record.seconds = time.monotonic() - began_s
        return self.record

    def _end(self, server: TalkServer) -> None:
        self._await(self._has_ended, server, "the job does not end")
        status = self._handle.wait(LIMIT_S).status
        self.record.rollbacks = int(status.generation > 1)

    def _judge(self, server: TalkServer) -> None:
        record = self.record
        record.requests, record.paid = server.had.total(), len(server.paid)
        record.refused = record.requests - record.paid
        record.refunds = len(server.refunds)
        record.refunded_again = sum(len(keys) - 1 for keys in server.refunds.values())
        if record.failure:
            return
        found = judge_talks(self._folder, server, self._given)
        record.logged, record.repeated, record.examples = found.calls, found.calls_repeated, found.examples
        for name in ("lost", "duplicated", "contradicted"):
            setattr(record, name, getattr(found, name))

    # ------------------------------------------------------------------ one kill

    def _perform(self, kill: TalkKill, server: TalkServer) -> bool:
        """Kills at its moment. Returns whether the job goes on."""
        wanted = server.paid_count + REPLIES_BETWEEN

        def may_kill() -> bool:
            return self._is_whole() and server.paid_count >= wanted

        self._await(lambda: self._is_over(server) or may_kill(), server, "the tasks do not run again after a kill")
        if self._is_over(server):
            return False
        if kill.point is None:
            self._kill_any(kill)
            return True
        if kill.is_of_successor:
            point = self._points.set_breakpoint(kill.point, where=lambda reached: _is_of(kill, reached))
            self._kill_any(TalkKill(None, kill.step))
        else:
            point = self._points.set_breakpoint(kill.point, where=lambda reached: _is_of(kill, reached))
        deadline_s = time.monotonic() + REACHED_S
        try:
            while point.hit is None and time.monotonic() < deadline_s:
                self._feed(server)
                time.sleep(LOOK_EVERY_S)
            if point.hit is None:
                self.record.missed += 1
            else:
                self._note(kill, point.hit.pid)
        finally:
            self._points.withdraw(point)
        return True

    def _kill_any(self, kill: TalkKill) -> None:
        """Kills the process of one of the step's tasks."""
        tasks = [task for task in self._handle.status().tasks if task.pid and _step_of(task.name) == kill.step]
        if tasks:
            self._note(kill, self._rng.choice(tasks).pid)

    def _note(self, kill: TalkKill, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.record.kills[str(kill)] = self.record.kills.get(str(kill), 0) + 1
        self._killed = pid

    # ------------------------------------------------------------------ the state of the job

    _killed = 0

    def _feed(self, server: TalkServer) -> None:
        """Opens the input as far as a few records ahead: a barrier comes after what is in front of a slow step."""
        self._gate.open_to(min(AHEAD + server.paid_count, SOURCES * len(self._given)))

    def _is_whole(self) -> bool:
        """Returns whether all tasks run, with a standby each, and none in the process that was killed last."""
        status = self._handle.status()
        return is_whole(status, STANDBYS, ()) and all(task.pid != self._killed for task in status.tasks)

    def _has_ended(self) -> bool:
        return bool(self._handle.status().phase is Phase.ENDED)

    def _is_over(self, server: TalkServer) -> bool:
        """Returns whether all replies have been sent, or the job has ended."""
        return server.paid_count >= self._replies or self._has_ended()

    def _await(self, condition: Callable[[], bool], server: TalkServer, complaint: str) -> None:
        """Waits for a condition, as long as the server is asked. Raises: SliceFailed."""
        deadline_s, before = time.monotonic() + LIMIT_S, server.paid_count
        while not condition():
            self._feed(server)
            if (now := server.paid_count) != before:
                deadline_s, before = time.monotonic() + LIMIT_S, now
            if time.monotonic() >= deadline_s:
                raise SliceFailed(f"{complaint}, within {LIMIT_S:g} s")
            time.sleep(LOOK_EVERY_S)


def _step_of(task: str) -> str:
    return task.rpartition("/")[0]


def _is_of(kill: TalkKill, reached: FaultPointReached) -> bool:
    return kill.step in reached.task
