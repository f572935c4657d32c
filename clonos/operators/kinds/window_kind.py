"""Protocols of the kinds of records below the windows of each key: what ``KeyWindows`` asks of them.

The operator has the rules: which time counts, where late records go, and when windows are looked at. A kind has the
batch with its keys, and the open windows of each key: cells with accumulators (``object_windows``), or slots of a table
in columns (``column_sessions``).
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, NamedTuple, Protocol

from clonos.operators.kinds.kind import BatchT, GivenT, MadeT, RecordKind
from clonos.operators.operator import DueTimer, Operator, Scope
from clonos.operators.state.keyed_state import Table
from clonos.operators.state.state_spec import StateSpec
from clonos.operators.windows.window_rules import WindowRules


class WindowedStep(NamedTuple):
    """Step of windows: its name, operator, scope and rules; ``reached`` has its watermark, once there is one."""

    name: str
    operator: Operator
    scope: Scope
    rules: WindowRules
    reached: Table

    @property
    def watermark_ns(self) -> int | None:
        """Watermark, None before the first one."""
        return self.reached.entries.get(0)

    @property
    def reached_ns(self) -> int | None:
        """Watermark that windows follow, None in processing time."""
        return self.reached.entries.get(0) if self.rules.is_event_time else None

    def has_passed(self, instant_ns: int) -> bool:
        """Returns whether windows that end at an instant have ended."""
        reached_ns = self.reached_ns
        return reached_ns is not None and instant_ns <= reached_ns


class TakenBatch(NamedTuple):
    """Places of the late records of a batch, as its kind has places, and the start of a session that may continue one
    that has ended; None without such a session."""

    late: Sized
    torn_ns: int | None


class KeyedWindows(Protocol[GivenT]):
    """Open windows of each key. ``is_event``: in event time, else by the clock."""

    def take(self, batch: GivenT, instants: Any, first_number: int) -> TakenBatch:
        """Adds records to their windows. ``first_number``: that of the first record by arrival."""

    def next_ns(self, is_event: bool) -> int | None:
        """Returns an instant before which nothing happens."""

    def due(self, is_event: bool, until_ns: int) -> list[DueTimer]:
        """Returns what happens up to an instant, in order."""

    def fire(self, is_event: bool, due: Sequence[DueTimer]) -> None:
        """Emits what windows owe that have ended, by their end and first arrival; forgets those whose lateness has
        passed."""

    def end_of_time(self) -> None:
        """Emits what windows owe, by their end and first arrival, and forgets them."""


class WindowRecordKind(RecordKind[MadeT], Protocol[MadeT]):
    """Kind of the records of windows."""

    def state_specs(self, rules: WindowRules) -> tuple[StateSpec, ...]:
        """Returns the declarations of what the windows open."""

    @property
    def fires_in_spans(self) -> bool:
        """Whether the windows that end at several instants may emit at once."""


class WindowsKind(WindowRecordKind[BatchT], Protocol[BatchT]):
    """Kind of the records of windows whose state is per key."""

    def windows(self, step: WindowedStep) -> KeyedWindows[BatchT]:
        """Returns the open windows of a step."""
