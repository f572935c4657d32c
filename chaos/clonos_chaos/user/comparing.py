"""Compares the output of a job's sinks with that of fault-free runs: lost rows and duplicated rows.

Rules: a sink is compared only where fault-free runs agree. Those runs have slow networks and short pauses of processes
all the same, so that an order that may differ does. Before a differing world counts as wrong, more of them are run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from clonos.core.model.errors import JobError
from clonos_chaos.user.user_sinks import differences, identity_of
from clonos_chaos.user.user_world import Outputs

Compare = bool | Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]]
"""Sinks to compare: all whose rows are equal in all runs, or none; or a function of the part of a row that is equal."""

FAULT_FREE_WORLDS: Final = 3
"""Few, because a difference is confirmed by more of them. Where nothing is compared, the first one is enough."""

FAULT_FREE_WORLDS_MAX: Final = 20

RunWithoutFaults = Callable[[int], Outputs]
"""Runs the n-th fault-free world."""


class OutputComparison:
    """Comparison with the common output of fault-free runs."""

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
        self._learn_from(range(1, FAULT_FREE_WORLDS))

    @property
    def sinks(self) -> tuple[str, ...]:
        """Returns the names of the compared sinks."""
        return tuple(self._identities)

    def complaints(self, outputs: Outputs, expected: Outputs | None = None) -> list[str]:
        """Returns what is wrong with a world's outputs. ``expected``: of another fault-free run than the first."""
        wanted = self._first if expected is None else expected
        return [
            text
            for sink, identify in self._identities.items()
            for text in differences(sink, wanted[sink], outputs[sink], identify)
        ]

    def confirm(self) -> bool:
        """Returns whether a differing world is wrong: more fault-free runs still agree."""
        compared = self.sinks
        if not self._is_confirmed:
            self._is_confirmed = True
            self._learn_from(range(FAULT_FREE_WORLDS, FAULT_FREE_WORLDS_MAX))
        return self.sinks == compared

    def _learn_from(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if not self._identities:
                return
            self._learn(self._run_without_faults(number))

    def _learn(self, outputs: Outputs) -> None:
        for sink, identify in list(self._identities.items()):
            if _counted(outputs[sink], identify) == _counted(self._first[sink], identify):
                continue
            if self._is_demanded:
                raise JobError(
                    f"{self._job}: compare= selects a part of the rows of {sink} that differs between two fault-free"
                    " runs. Select less of the row, such as the number of the record."
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
