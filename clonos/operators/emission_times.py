"""When a step that gathers records emits: after a number of records, after a length of time, or at the end."""

from __future__ import annotations

from dataclasses import dataclass

from clonos.operators.event_time.durations import duration_text


@dataclass(frozen=True, slots=True)
class Emission:
    """When a step emits; made by ``each``, ``every``, ``changes`` and ``at_end``.

    What is left is emitted when the input ends.
    """

    count: int | None = None
    interval_ns: int | None = None
    is_per_batch: bool = False
    has_before: bool = False

    @property
    def is_final(self) -> bool:
        """Returns whether the step emits once, when the input has ended."""
        return self.count is None and self.interval_ns is None and not self.is_per_batch

    def __str__(self) -> str:
        """Returns the call that made it; stores have this text."""
        if self.count is not None:
            return f"each({self.count})"
        if self.is_per_batch:
            return "changes(before=True)" if self.has_before else "changes()"
        return "at_end()" if self.interval_ns is None else f'every("{duration_text(self.interval_ns)}")'
