"""Compares what a job's sinks got with what they get where nothing fails: what is lost, and what is there too often.

Rules: a sink is compared only where runs without failures agree. Those runs are hindered all the same, by slow networks
and by processes that stand still for a while, so that an order that may differ does. Where a world differs, more of
them are run before it is said to be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from clonos.core.model.errors import JobError
from clonos_chaos.user.user_sinks import differences, identity_of
from clonos_chaos.user.user_world import Outputs

Compare = bool | Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]]
"""Which sinks: all whose rows are alike in all runs, or none; or what of a row is alike."""

FAULT_FREE_WORLDS: Final = 6
FAULT_FREE_WORLDS_MAX: Final = 20

RunWithoutFaults = Callable[[int], Outputs]
"""The n-th run without failures."""


class Comparison:
    """What runs without failures have in common."""

    def __init__(self, job: str, compare: Compare, run_without_faults: RunWithoutFaults) -> None:
        __tracebackhide__ = True
        self._job = job
        self._run_without_faults = run_without_faults
        self._is_confirmed = False
        self._first = run_without_faults(0)
        unknown = sorted(set(compare) - set(self._first)) if isinstance(compare, Mapping) else []
        if unknown:
            raise JobError(f"{job} has no sink {unknown[0]!r}; compare= may name: {', '.join(self._first)}.")
        self._identities = {
            sink: identify for sink in self._first if (identify := _identify(compare, sink)) is not None
        }
        self._is_demanded = callable(compare) or isinstance(compare, Mapping)
        for number in range(1, FAULT_FREE_WORLDS):
            self._learn(run_without_faults(number))

    @property
    def sinks(self) -> tuple[str, ...]:
        """Those that are compared."""
        return tuple(self._identities)

    def complaints(self, outputs: Outputs, expected: Outputs | None = None) -> list[str]:
        """What is wrong with a world's outputs. ``expected``: those of a run without failures, if not the first."""
        wanted = self._first if expected is None else expected
        return [
            text
            for sink, identify in self._identities.items()
            for text in differences(sink, wanted[sink], outputs[sink], identify)
        ]

    def confirm(self) -> bool:
        """A world differs: whether it is wrong, or runs without failures differ as much."""
        compared = self.sinks
        if not self._is_confirmed:
            self._is_confirmed = True
            for number in range(FAULT_FREE_WORLDS, FAULT_FREE_WORLDS_MAX):
                self._learn(self._run_without_faults(number))
        return self.sinks == compared

    def _learn(self, outputs: Outputs) -> None:
        for sink, identify in list(self._identities.items()):
            if _counted(outputs[sink], identify) == _counted(self._first[sink], identify):
                continue
            if self._is_demanded:
                raise JobError(
                    f"{self._job}: compare= says what of a row of {sink} is the same in all runs, and it differs in two"
                    " runs in which nothing failed. Take less of the row, such as the record's own number."
                )
            del self._identities[sink]


def _identify(compare: Compare, sink: str) -> Callable[[Any], Any] | None:
    if isinstance(compare, Mapping):
        return compare.get(sink)
    if callable(compare):
        return compare
    return _whole if compare else None


def _whole(row: Any) -> Any:
    return row


def _counted(rows: list[Any], identify: Callable[[Any], Any]) -> Counter[bytes]:
    return Counter(identity_of(identify(row)) for row in rows)
