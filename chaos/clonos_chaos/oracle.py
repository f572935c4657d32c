"""What must hold in every world (``docs/protocol.md``, section 10)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from clonos.core import coordination as c
from clonos.core.ids import Incarnation, TaskId, ViewNumber
from clonos.core.messages import LogLost, View

if TYPE_CHECKING:
    from clonos_chaos.sim_slot import SimSlot
    from clonos_chaos.world import World


class Oracle:
    """Watches a world and judges its end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.view = View(ViewNumber(0), 0, "", (), ())
        self.lives: dict[TaskId, set[Incarnation]] = {}

    def started(self, host: SimSlot, task: TaskId, incarnation: Incarnation) -> None:
        """An incarnation is started once, in one slot."""
        lives = self.lives.setdefault(task, set())
        if incarnation in lives:
            self.world.fail(f"task {task} was started twice as incarnation {incarnation:x}")
        lives.add(incarnation)
        self.world.note(f"start {self.world.plan.task_name(task)} {incarnation:x} in slot {host.id}")

    def viewed(self, view: View) -> None:
        """Views grow; a new generation needs a lost log."""
        if self.view.number and view.generation > self.view.generation:
            self.world.outcome.rollbacks += 1
        self.view = view
        self.world.outcome.views += 1

    def lost(self, message: LogLost) -> None:
        """A task has reported its log as lost."""
        self.world.outcome.reached["lost"] = self.world.outcome.reached.get("lost", 0) + 1

    # ------------------------------------------------------------------ the end

    def judge(self) -> None:
        """The job has ended: its output is that of some run without failures."""
        world = self.world
        if not isinstance(world.ending, c.JobDone):
            world.fail(f"the job did not finish: {world.ending}")
        complaints = [text for outside in world.outsides.values() for text in outside.complaints]
        immediate = [row for outside in world.outsides.values() for row in outside.rows]
        transactional = [row for rows in world.committed.values() for row in rows]
        has_immediate = bool(world.outsides)
        has_transactional = any(vertex.is_transactional for vertex in world.plan.vertices)
        rolled_back = world.outcome.rollbacks > 0
        if has_immediate and not rolled_back:
            complaints += self._once("immediate", immediate)
        if has_transactional:
            complaints += self._once("transactional", transactional)
        if not rolled_back:
            complaints += self._agreeing([*immediate, *transactional])
            complaints += self._calls([*immediate, *transactional])
        else:
            complaints += self._agreeing(transactional)
        if complaints:
            world.fail("; ".join(complaints[:5]))

    def _once(self, sink: str, rows: list[Any]) -> list[str]:
        """Every input has its effect once on every path."""
        counted = Counter(offset for offset, _ in rows)
        copies = self.world.job.copies
        expected = range(self.world.job.records)
        wrong = {offset: counted[offset] for offset in expected if counted[offset] != copies}
        strange = [offset for offset in counted if offset not in expected]
        return [f"{sink} sink: offsets {wrong} instead of {copies} times each, strange {strange}"] if wrong or strange else []

    def _agreeing(self, rows: list[Any]) -> list[str]:
        """What a vertex drew for an offset is the same on every path on which it left."""
        drawn: dict[tuple[Any, ...], Any] = {}
        found = []
        for offset, story in rows:
            path: tuple[int, ...] = ()
            for vertex, task, *values in story:
                path = (*path, vertex)
                known = drawn.setdefault((offset, path), (task, values))
                if known != (task, values):
                    found.append(f"offset {offset} at {path}: {known} and {(task, values)}")
        states: dict[tuple[Any, ...], int] = {}
        for (offset, path), (task, values) in drawn.items():
            place = (path[-1], task, offset % 7, values[0])
            if states.setdefault(place, hash_free(offset, path)) != hash_free(offset, path):
                found.append(f"state {place} was reached by two records")
        return found

    def _calls(self, rows: list[Any]) -> list[str]:
        """Every answer that is visible was given; the same question has one key as long as its answer counts."""
        given = {answer for _, _, answer in self.world.job.service.answers}
        return [
            f"answer {values[-1]} for offset {offset} was never given"
            for offset, story in rows
            for _, _, *values in story
            if values[-1] and values[-1] not in given
        ]


def hash_free(offset: int, path: tuple[int, ...]) -> int:
    """A number for a place, the same in every process."""
    number = offset
    for vertex in path:
        number = number * 64 + vertex + 1
    return number
