"""The comparison with runs without faults: how many of them it needs."""

from __future__ import annotations

from itertools import count

from clonos_chaos.user.comparing import FAULT_FREE_WORLDS, FAULT_FREE_WORLDS_MAX, Compare, OutputComparison
from clonos_chaos.user.user_world import Outputs


class Runs:
    """Runs without faults of a job whose sink ``same`` has the same rows in all of them, and ``other`` others."""

    def __init__(self, sinks: tuple[str, ...]) -> None:
        self.sinks = sinks
        self.count = 0

    def run(self, number: int) -> Outputs:
        self.count += 1
        rows = {"same": [1, 2], "other": [number]}
        return Outputs({sink: rows[sink] for sink in self.sinks}, number, 0, ())


def compared(runs: Runs, compare: Compare = True) -> OutputComparison:
    return OutputComparison("job", compare, runs.run)


def test_a_comparison_of_nothing_needs_one_run() -> None:
    runs = Runs(("same", "other"))
    assert compared(runs, compare=False).sinks == ()
    assert runs.count == 1


def test_runs_end_with_the_last_sink_that_has_the_same_rows_in_all() -> None:
    runs = Runs(("other",))
    assert compared(runs).sinks == ()
    assert runs.count == 2


def test_sinks_with_the_same_rows_are_compared_and_a_difference_is_confirmed_by_more_runs_once() -> None:
    runs = Runs(("same", "other"))
    comparison = compared(runs)
    assert (comparison.sinks, runs.count) == (("same",), FAULT_FREE_WORLDS)
    assert comparison.complaints(Outputs({"same": [1], "other": []}, 0, 0, ())) != []
    assert comparison.confirm()
    assert comparison.confirm()
    assert runs.count == FAULT_FREE_WORLDS_MAX


def test_a_sink_that_differs_in_later_runs_without_faults_is_compared_no_longer() -> None:
    numbers = count()

    def run(number: int) -> Outputs:
        return Outputs({"sink": [next(numbers) < FAULT_FREE_WORLDS]}, number, 0, ())

    comparison = OutputComparison("job", True, run)
    assert list(comparison.sinks) == ["sink"]
    assert not comparison.confirm()
    assert list(comparison.sinks) == []
