"""Calls of a user's job in a simulated world: stand-ins answer them, and an oracle checks how often each is made.

Rules: stand-ins of the test answer instead of external systems. HTTP without a stand-in ends the test, because a
simulated world does not use the network. A failed assertion in a stand-in fails the test and is not an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from clonos.core.ports.operator_chain import ChainContext
from clonos.core.ports.recorder import Recorder
from clonos.core.task.call_parts import CallAttempt
from clonos.operators.steps.awaited_events import Awaits
from clonos_services.calls import CallRequest, Perform, watched_by
from clonos_services.stand_ins import NobodyAnswers


class Call(NamedTuple):
    """Call as the external system received it. ``place``: number of earlier calls of the task in all its incarnations;
    -1 for a concurrent call."""

    task: str
    service: str
    request: bytes
    key: str
    generation: int
    life: tuple[int, bool]  # incarnation, and whether it began as a shadow
    place: int
    is_effect: bool
    is_in_doubt: bool


@dataclass
class _Life:
    recorder: Recorder  # referenced, so that its id stays unique
    task: str
    generation: int
    id: tuple[int, bool]  # incarnation, and whether it began as a shadow
    index: int


class WatchedSubmitting:
    """Recorder of an incarnation that passes concurrent calls to the watch."""

    def __init__(self, recorder: Any, watch: CallWatch) -> None:
        self._recorder = recorder
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)

    def submit(
        self,
        number: int,
        service: str,
        request: bytes,
        perform: Callable[..., object],
        parts: Mapping[bytes, bytes] | None = None,
    ) -> str:
        """Implements ``clonos.core.ports.recorder.CallingRecorder``."""
        watched = self._watch.beside(self._recorder, service, request, perform)
        key: str = self._recorder.submit(number, service, request, watched, parts)
        return key


class CallWatch:
    """Oracle that records all calls of a world."""

    def __init__(self, broken: Callable[[Exception], None]) -> None:
        """``broken``: receives errors of the test itself, which are not answers."""
        self.calls: list[Call] = []
        self._broken = broken
        self._lives: dict[int, _Life] = {}
        self._index_at: dict[tuple[str, int], int] = {}  # (task, checkpoint) -> calls before its barrier

    def opened(self, context: ChainContext) -> None:
        """Records a new incarnation, which has restored the checkpoint of its recorder."""
        recorder = context.recorder
        index = self._index_at.get((context.task_name, recorder.epoch), 0)
        life = _Life(recorder, context.task_name, context.generation, (context.incarnation, context.is_shadow), index)
        self._lives[id(recorder)] = life

    def at_barrier(self, recorder: Recorder, checkpoint: int) -> None:
        """Records the number of calls before a barrier."""
        life = self._lives[id(recorder)]
        self._index_at[life.task, checkpoint] = life.index

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Records calls inside the ``with`` block."""
        with watched_by(self._asked):
            yield

    def _asked(self, asking: CallRequest, perform: Perform, in_doubt: Perform | None) -> tuple[Perform, Perform | None]:
        if isinstance(asking.recorder, CallAttempt):  # inside an asynchronous call, which is recorded as a whole
            return perform, in_doubt
        life = self._lives[id(asking.recorder)]
        place, life.index = life.index, life.index + 1
        recorded = partial(self._recorded, life, asking, place)
        return recorded(perform, False), None if in_doubt is None else recorded(in_doubt, True)

    def _recorded(
        self, life: _Life, asking: CallRequest, place: int, act: Callable[..., object], is_in_doubt: bool
    ) -> Perform:
        def performed(key: str, **more: Any) -> object:
            about = (life.generation, life.id, place, asking.is_effect, is_in_doubt)
            call = Call(life.task, asking.service, asking.request, key, *about)
            self.calls.append(call)
            try:
                found = act(key, **more)
            except (AssertionError, NobodyAnswers) as error:
                self._broken(error)
                raise
            if type(found) is Awaits:
                self.calls.remove(call)  # it goes on with the event, in this life too
            return found

        return performed

    def beside(self, recorder: Recorder, service: str, request: bytes, perform: Callable[..., object]) -> Perform:
        """Wraps a concurrent call, which is recorded when it is made."""
        asking = CallRequest(recorder, service, request, False)
        return self._recorded(self._lives[id(recorder)], asking, -1, perform, False)

    def complaints(self, exposed: set[str], moved: set[tuple[str, int]]) -> list[str]:
        """Returns what is wrong with the calls. ``exposed``: tasks that died with their keepers, so that their
        announcements may be lost. ``moved``: incarnations that began with a planned move."""
        found = []
        lives: set[tuple[str, tuple[int, bool]]] = set()
        requests: dict[str, tuple[str, bytes]] = {}
        effects: dict[tuple[str, int, int], list[Call]] = {}
        for call in self.calls:
            if (call.key, call.life) in lives:
                found.append(f"{call.task} has made the call {call.service} with the key {call.key} twice in one life")
            lives.add((call.key, call.life))
            if call.task in exposed:
                continue
            if call.is_in_doubt and (call.task, call.life[0]) in moved:
                found.append(f"{call.task} has moved while its call of {call.service} was under way")
            if requests.setdefault(call.key, (call.service, call.request)) != (call.service, call.request):
                found.append(f"{call.task} has given the key {call.key} to two different calls of {call.service}")
            if call.is_effect:
                effects.setdefault((call.task, call.generation, call.place), []).append(call)
        for (task, _, index), calls in effects.items():
            service = calls[0].service
            if len({call.key for call in calls}) > 1:
                found.append(f"{task} has repeated its call {index}, of {service}, with another key")
            if sum(not call.is_in_doubt for call in calls) > 1:
                found.append(f"{task} has made its call {index}, of {service}, twice without being in doubt")
        return found
