"""Outputs whose receiving task is chosen here: at random, in turn within a group, by a function, or always the first.

The edge partitions by key; the operator gives each row an int, and each row of columns a key group, that the
partitioning sends to the chosen task. What is chosen is a function of the rows since the last barrier and of the
recorder, so a replay chooses the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any

from clonos.core.values.keys import Router, groups_of_task
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.chain_outputs import ToEdge, routed_deep
from clonos.operators.columnar.row_forms import without_form
from clonos.operators.operator import Operator, Scope, Times, without
from clonos.operators.row_errors import RecordError


class ToTask(ToEdge, ABC):
    """Base of outputs that choose the receiving task of each row."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port)
        self._name = name

    def open(self, scope: Scope) -> None:
        super().open(scope)
        self._context = scope.context
        tasks, most = scope.context.receivers[self._port], scope.context.max_parallelism
        self._tasks = tasks
        self._keys = keys_of_tasks(tasks, most)
        self._groups = [groups_of_task(task, tasks, most)[0] for task in range(tasks)]

    def rows(self, rows: list[Any], times: Times = None) -> None:
        if self.guard.routes and (deep := routed_deep(self.guard, rows)):
            rows, times = without(rows, deep), times and without(times, deep)
        targets, failed = self._targets(rows)
        if failed:
            rows, times = without(rows, failed), times and without(times, failed)
        if rows:
            self._collector.rows(self._port, rows, [self._keys[target] for target in targets], times)

    def columns(self, batch: RecordBatch) -> None:
        self._send_columns(batch, *self._targets(range(batch.num_rows)))

    def _send_columns(self, batch: RecordBatch, targets: list[int], failed: list[int]) -> None:
        if failed:
            import pyarrow  # loaded only if there are columns

            batch = batch.take(pyarrow.array(without(list(range(batch.num_rows)), failed)))
        if batch.num_rows:
            self._collector.columns(self._port, batch, [self._groups[target] for target in targets])

    @abstractmethod
    def _targets(self, rows: Any) -> tuple[list[int], list[int]]:
        """Returns the index of the receiving task of each row, and the indexes of rows that were routed as errors."""


class ToFirst(ToTask):
    """Sends all rows to the first task."""

    def _targets(self, rows: Any) -> tuple[list[int], list[int]]:
        return [0] * len(rows), []


class ToGroup(ToTask):
    """Sends rows in turn to the tasks of a group, so that each receiver has few senders; in turn anew at a barrier."""

    _sent = 0

    def prepare(self, checkpoint: int) -> None:
        self._sent = 0

    def _targets(self, rows: Any) -> tuple[list[int], list[int]]:
        index, senders = self._context.index, self._context.parallelism
        first = index * self._tasks // senders
        width = max(1, (index + 1) * self._tasks // senders - first)
        begin = self._sent
        self._sent += len(rows)
        return [first + number % width for number in range(begin, self._sent)], []


class ToRandom(ToTask):
    """Sends each row to a random task. The random numbers are those of the epoch's seed, which is in the log."""

    _random: Random | None = None

    def prepare(self, checkpoint: int) -> None:
        self._random = None

    def _targets(self, rows: Any) -> tuple[list[int], list[int]]:
        if self._random is None:
            seed = self._context.recorder.seed() + f"{self._name}/{self._port}".encode()
            self._random = Random(blake2b(seed, digest_size=16).digest())
        draw, tasks = self._random.random, self._tasks
        return [int(draw() * tasks) for _ in rows], []


class ToChosen(ToTask):
    """Sends each row to the task that a function of the user chooses."""

    changes_rows = True
    runs_user_code = True

    def __init__(self, function: Callable[[Any, int], int], key: Callable[[Any], Any] | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._function, self._key = function, key

    def _targets(self, rows: Any) -> tuple[list[int], list[int]]:
        return self.guard.each(self._target, rows)

    def columns(self, batch: RecordBatch) -> None:
        rows, batch = self.python_rows(without_form(batch))
        self._send_columns(batch, *self._targets(rows))

    def _target(self, row: Any) -> int:
        target = self._function(row if self._key is None else self._key(row), self._tasks)
        if type(target) is not int or not 0 <= target < self._tasks:
            raise TaskUnknown(self._name, repr(target)[:80], self._tasks)
        return target


class TaskUnknown(RecordError):
    """A function of ``partition_custom`` returned something other than the index of a task."""

    step: str
    returned: str
    tasks: int

    def __str__(self) -> str:
        return (
            f"the function of {self.step} returned {self.returned}, and the next step has the tasks 0 to"
            f" {self.tasks - 1}. Return one of these ints."
        )


@dataclass(frozen=True, slots=True)
class Route:
    """Way to a task that the sender chooses. ``make`` gets the port and the name."""

    name: str
    make: Callable[..., Operator]

    def output(self, port: int) -> Callable[[], Operator]:
        """Returns the function that creates the output at a port. It learns the number of receivers when it opens."""
        return partial(self.make, port, self.name)


def keys_of_tasks(tasks: int, max_parallelism: int) -> list[int]:
    """Returns for each task an int that partitioning by key sends to it."""
    router = Router(tasks, max_parallelism)
    found: dict[int, int] = {}
    key = 0
    while len(found) < tasks:
        found.setdefault(router.target(key), key)
        key += 1
    return [found[task] for task in range(tasks)]
