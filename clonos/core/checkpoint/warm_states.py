"""States of tasks of the next plan, read while the tasks of the present one still run (protocol 6.12).

A state is read as far as the chain of a completed checkpoint goes. A longer chain that begins with the same objects
goes on from there; any other one is read from its first object. Both apply the same objects in the same order with the
same code, so a state does not depend on how much of it was read before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from clonos.core.checkpoint.snapshot import ReadObject, RestoredState, RestoreSource, StateUnion, restore_from
from clonos.core.model.errors import EnvironmentFault
from clonos.core.ports.operator_chain import Mirror
from clonos.core.ports.task_snapshot import StateSource
from clonos.core.wire.control_messages import WarmSource


class ReadAheadEnded(EnvironmentFault):
    """End of the reading of an object for a task of the next plan, because that is not needed any more."""

    name: str

    def __str__(self) -> str:
        return f"the object {self.name} was not read to its end, because nothing more is read ahead."


class ReadAheadFull(EnvironmentFault):
    """The states of tasks of the next plan have no more room in this process: each task reads the rest itself."""

    bytes_max: int

    def __str__(self) -> str:
        return f"at most {self.bytes_max:,} bytes of objects are read ahead in a process."


WARM_BYTES_MAX: Final = 1 << 30
"""Bytes of the objects whose states a process retains for tasks of the next plan. They need memory beside the states of
the present tasks, so that a process whose memory suffices for its tasks must not be killed by a warm-up."""


class WarmKey(NamedTuple):
    """Part of the state of a task of the next plan, by its name: what it takes from task ``of_task`` of the ``width``
    tasks of a vertex. Without a vertex it is the chain with which the task goes on.
    """

    task: str
    vertex: str = ""
    of_task: int = 0
    width: int = 0


class WarmStates:
    """States of tasks of one plan, whose ``widths`` these are. One thread may extend them while another one takes them.

    ``is_ended``: nothing more is to be read. ``bytes_max``: of the objects of all states.
    """

    def __init__(self, widths: Mapping[str, int], bytes_max: int = WARM_BYTES_MAX) -> None:
        self.widths, self.bytes_max = widths, bytes_max
        self.is_ended = False
        self._states: dict[WarmKey, tuple[tuple[str, ...], RestoredState]] = {}
        self._sizes: dict[WarmKey, int] = {}  # bytes of the objects; only the thread that extends has them

    def __len__(self) -> int:
        return len(self._states)

    def take(
        self, key: WarmKey, names: tuple[str, ...], read: ReadObject, new_mirror: Callable[[], Mirror]
    ) -> RestoredState:
        """Returns the state of a chain of objects, of which it reads those that were not read before. The state is the
        caller's alone. ``new_mirror`` returns an empty mirror.

        Raises: what ``read``, ``new_mirror`` and the mirror raise; then nothing of the chain counts as read.
        """
        known, restored = self._states.pop(key, ((), None))
        if restored is None or names[: len(known)] != known:
            return restore_from(((name, read(name)) for name in names), new_mirror())
        rest = names[len(known) :]
        return restore_from(((name, read(name)) for name in rest), restored.mirror, restored.snapshot)

    def extend(self, key: WarmKey, names: tuple[str, ...], read: ReadObject, new_mirror: Callable[[], Mirror]) -> None:
        """Reads a state up to the last object of a chain, and retains it.

        Raises: ReadAheadFull: the objects of all states would exceed ``bytes_max``; the state is dropped. As ``take``.
        """
        known = self._states.get(key, ((), None))[0]
        if not known or names[: len(known)] != known:
            self._sizes[key] = 0
        try:
            self._states[key] = names, self.take(key, names, partial(self._counted, key, read), new_mirror)
        finally:
            if key not in self._states:
                del self._sizes[key]

    def _counted(self, key: WarmKey, read: ReadObject, name: str) -> Iterator[bytes | memoryview]:
        for piece in read(name):
            self._sizes[key] += len(piece)
            if sum(self._sizes.values()) > self.bytes_max:
                raise ReadAheadFull(self.bytes_max)
            yield piece


def restorer(warm: WarmStates, task: str, read: ReadObject) -> RestoreSource:
    """Returns what restores the sources of a task's state as far as they have not been read yet."""

    def restore(source: StateSource, names: tuple[str, ...], new_mirror: Callable[[], Mirror]) -> RestoredState:
        return warm.take(WarmKey(task, source.vertex, source.index, source.width), names, read, new_mirror)

    return restore


def read_ahead(
    warm: WarmStates, task: str, of: WarmSource, union: StateUnion, new_mirror: Callable[[], Mirror], read: ReadObject
) -> None:
    """Reads a part of the state of a task of the next plan. ``union``: for what it takes from other tasks;
    ``new_mirror`` returns an empty mirror for a chain with which it goes on.

    Raises: as ``WarmStates.take``.
    """
    if of.vertex:
        source = StateSource(of.vertex, of.index, of.width, len(of.objects))
        key, new_mirror = WarmKey(task, of.vertex, of.index, of.width), partial(union.new_mirror, source)
    else:
        key = WarmKey(task)
    warm.extend(key, of.objects, read, new_mirror)
