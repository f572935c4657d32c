"""State of a step of a job as Python values, as one checkpoint has it: what ``Handle.state`` returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.errors import JobError
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values import encode_value
from clonos.core.values.keys import Router, key_of, state_key
from clonos.job.stored_state import StateLocation, StateUnknown
from clonos.operators.steps.async_map import CALL_STATES
from clonos.operators.steps.awaited_events import AwaitedEvents
from clonos.operators.steps.context import EVENT_TIMERS, TIMERS
from clonos.operators.steps.keyed import STATE
from clonos.operators.steps.process import WATERMARK
from clonos.spark.frames.state_rows import NO_KEY, tasks_of

if TYPE_CHECKING:
    import pyarrow


OWN: Final = STATE.name
"""State of a step that declares none."""

BESIDE: Final = frozenset(spec.name for spec in (*CALL_STATES, *AwaitedEvents.SPECS, TIMERS, EVENT_TIMERS, WATERMARK))
"""States that steps have beside those that the user knows."""


class StateNotTabular(JobError):
    """The keys or values of a state have no common type of Arrow."""

    state: str
    reason: str

    def __str__(self) -> str:
        return f"the state {self.state} is not a table, because {self.reason}. Read it with items()."


@explains_calls
class CheckpointedState:
    """State of a step in one checkpoint: it does not change, also while the job goes on.

    A task of the checkpoint is read once, when an entry of it is asked for, and is in memory from then on.
    """

    def __init__(self, location: StateLocation, step: str, name: str | None) -> None:
        """``name``: that of one of several states of the step; None for its own one. Raises: StateUnknown."""
        self._location, self.step = location, location.steps(step)[0]
        self._tasks = tasks_of(location.metadata, self.step)
        self._read: dict[int, dict[str, dict[Any, Any]]] = {}  # by number of a task: entries by state and stored key
        self._is_chosen = name is not None
        self.name = self._main_name() if name is None else name

    @property
    def checkpoint(self) -> int:
        """The number of the checkpoint."""
        return self._location.metadata.checkpoint

    def get(self, key: object, default: object = None) -> Any:
        """Returns the value of a key, or ``default``. A key of several columns is a tuple.

        The task of the key is read, and the others if it does not have it.

        Raises: KeyUnsupported: no record can have this key. CheckpointRemoved: the job has removed the checkpoint
        since. StateUnknown: no task has a state of this name. StateLost, StoreFailed.
        """
        stored = state_key(key)
        for number in self._numbers(key):
            entries = self._entries(number)
            if stored in entries:
                return entries[stored]
        self._check_name()
        return default

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yields keys and values, task by task, in no order that means something. Rows without a key have None.

        The value of a step in columns is a dict by column. Raises: see ``get``.
        """
        for number in range(len(self._tasks)):
            for key, value in self._entries(number).items():
                yield (None if isinstance(key, _Place) else key_of(key)), value
        self._check_name()

    def table(self) -> pyarrow.Table:
        """Returns a table with a column ``key`` and a column ``value``, or one for each field if all values are dicts
        of the same fields, as those of a step in columns. Every value comes out as it is in the state.

        Raises: StateNotTabular. See ``get``.
        """
        import pyarrow

        entries = list(self.items())
        names = list(entries[0][1]) if entries and isinstance(entries[0][1], dict) else []
        columns: dict[str, list[Any]] = {"key": [key for key, _ in entries]}
        is_flat = all(isinstance(value, dict) and list(value) == names for _, value in entries)
        if not names or not is_flat or "key" in names or not all(isinstance(name, str) for name in names):
            columns["value"] = [value for _, value in entries]
        else:
            columns |= {name: [value[name] for _, value in entries] for name in names}
        try:
            table = pyarrow.table(columns)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise StateNotTabular(f"{self.step}/{self.name}", f"{error!s:.200}") from None
        for name, values in columns.items():
            if encode_value(table[name].to_pylist()) != encode_value(_plain(values)):
                reason = f"its column {name} has values of several types, which one column would change"
                raise StateNotTabular(f"{self.step}/{self.name}", reason)
        return table

    def __len__(self) -> int:
        """Returns the number of entries. Raises: see ``get``."""
        count = sum(len(self._entries(number)) for number in range(len(self._tasks)))
        self._check_name()
        return count

    def __repr__(self) -> str:
        return f"<state {self.name!r} of {self.step!r} at {self._location}>"

    # ------------------------------------------------------------------ reading

    def _numbers(self, key: object) -> list[int]:
        """Returns the numbers of the tasks in the order in which they are asked for a key: its owner is the first."""
        owner = Router(len(self._tasks), self._location.metadata.plan.max_parallelism).target(key)
        return sorted(range(len(self._tasks)), key=lambda number: number != owner)

    def _entries(self, number: int) -> dict[Any, Any]:
        return self._states(number).get(self.name, {})

    def _states(self, number: int) -> dict[str, dict[Any, Any]]:
        if number not in self._read:
            states: dict[str, dict[Any, Any]] = {}
            for state, key, value in self._location.entries(self.step, self._tasks[number]):
                entries = states.setdefault(state, {})
                entries[_stored(key)] = value
            self._read[number] = states
        return self._read[number]

    def _check_name(self) -> None:
        """Refuses a name that no task has, once all of them are read."""
        if self._is_chosen and self.name not in (known := self._names()):
            problem = f"has no state {self.name!r} of the step {self.step!r}"
            raise StateUnknown(str(self._location), problem, _listed(known))

    def _names(self) -> list[str]:
        return sorted({name for number in range(len(self._tasks)) for name in self._states(number)})

    def _main_name(self) -> str:
        """Returns the name of the only state that the user knows; ``OWN`` if there is none yet."""
        names = [name for name in self._names() if name not in BESIDE]
        if len(names) > 1 and OWN not in names:
            raise StateUnknown(str(self._location), f"has several states of the step {self.step!r}", _listed(names))
        return names[0] if len(names) == 1 else OWN


class _Place:
    """Place of a row without a key. It equals itself alone."""


def _stored(key: Any) -> Any:
    if key is NO_KEY:
        return _Place()
    return state_key(tuple(key) if isinstance(key, list) else key)


def _plain(value: Any) -> Any:
    """Returns a key or value as a table gives it back: tuples are lists."""
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def _listed(names: list[str]) -> str:
    return f"the states {', '.join(names)}: name one" if names else "none yet"
