"""Warning about a timer that is set for an instant in the past, which fires at once.

A timer of ``on_timer`` may lie in the past without a mistake: after a pause, a periodic timer catches up. So only the
timers that ``process`` sets are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from clonos.core.ports.recorder import Recorder
from clonos.operators.event_time.timestamps import from_timestamp_ns
from clonos.operators.warn_once import WarnOnce

TOLERANCE_NS: Final = 1_000_000
"""Age up to which an instant is not in the past: datetimes and floats are coarser than the clock."""

NEAR: Final = timedelta(days=1)
"""Distance from a time in the record up to which a timer's instant is taken to come from it."""

UNITS: Final = (1, 1_000, 1_000_000, 1_000_000_000)
"""Units per second of numbers that may be a time in a record."""


class PastTimers:
    """Lookout of one step for timers in the past; warns once in its life, and not in a replay.

    The driver logs the warning of one task only.
    """

    __slots__ = ("_step", "_recorder", "_record", "_warning", "is_firing")

    def __init__(self, step: str, recorder: Recorder, record: Callable[[], Any]) -> None:
        """Creates the lookout; ``record`` returns the record that is being processed."""
        self._step = step
        self._recorder = recorder
        self._record = record
        self._warning = WarnOnce(step, recorder)
        self.is_firing = False
        """Whether ``on_timer`` is running."""

    def check(self, instant_ns: int) -> None:
        """Compares an instant with the clock. Each call reads the clock, because a replay has to read it too."""
        if self.is_firing:
            return
        age_ns = self._recorder.instant_ns(False) - instant_ns
        if age_ns > TOLERANCE_NS:
            self._warning.warn(lambda: _text(self._step, from_timestamp_ns(instant_ns), age_ns, self._record()))


def _text(step: str, instant: datetime, age_ns: int, record: Any) -> str:
    age = timedelta(seconds=age_ns // 1_000_000_000)
    text = f"the step {step} set a timer for {instant.isoformat()}, {age} ago, so it fires at once."
    if any(abs(found - instant) <= NEAR for found in _times_in(record)):
        return (
            f"{text} That is a time of the record, so event time seems to be meant: use context.set_event_timer on a"
            " stream with timestamps. Timers of set_timer follow the clock."
        )
    return f"{text} Timers follow the clock: set them from clock.now(), such as clock.now() + timedelta(seconds=5)."


def _times_in(record: Any) -> Iterator[datetime]:
    """Yields what may be a time in a record: a datetime, an ISO text or a number since the Unix epoch."""
    cells = record.values() if isinstance(record, dict) else record if isinstance(record, (tuple, list)) else None
    if cells is None:
        cells = (record, *getattr(record, "__dict__", {}).values())
    for cell in cells:
        try:
            if isinstance(cell, str):
                cell = datetime.fromisoformat(cell)
            if isinstance(cell, datetime):
                yield cell if cell.tzinfo is not None else cell.replace(tzinfo=UTC)
            elif type(cell) in (int, float):
                yield from (datetime.fromtimestamp(cell / unit, UTC) for unit in UNITS if 1e8 < cell / unit < 1e10)
        except (ValueError, OverflowError):
            continue
