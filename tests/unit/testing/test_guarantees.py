"""Guarantees that follow from the rows in an external system, and what checks of connectors refuse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos import files
from clonos.core.model.errors import JobError
from clonos.testing import Evidence, Guarantee, Guarantees, check_sink, check_source
from clonos_chaos.connectors.guarantees import Pair, announced_by, judged
from tests.harnesses.small_sinks import Changing, Repeating, Rows, stored

EXPECTED = {0: "a", 1: "b", 2: "c"}
RIGHT: list[Pair] = [(0, "a"), (1, "b"), (2, "c")]


@pytest.mark.parametrize(
    ("found", "counts", "guarantee"),
    [
        (RIGHT, (0, 0, 0), Guarantee.EXACTLY_ONCE),
        (RIGHT[1:], (1, 0, 0), Guarantee.AT_MOST_ONCE),
        ([*RIGHT, (0, "a"), (0, "a")], (0, 2, 0), Guarantee.AT_LEAST_ONCE),
        ([*RIGHT, (0, "z")], (0, 0, 1), Guarantee.AT_LEAST_ONCE),
        ([*RIGHT, (7, "z")], (0, 0, 1), Guarantee.AT_LEAST_ONCE),
        ([*RIGHT[1:], (0, "z")], (0, 0, 1), Guarantee.NONE),
        ([*RIGHT[1:], (1, "b")], (1, 1, 0), Guarantee.NONE),
    ],
)
def test_rows_are_counted_as_lost_twice_and_changed(
    found: list[Pair], counts: tuple[int, int, int], guarantee: Guarantee
) -> None:
    evidence = judged(EXPECTED, found)
    assert (evidence.lost, evidence.twice, evidence.changed) == counts
    assert evidence.guarantee is guarantee


def test_a_broken_contract_or_a_failed_job_is_not_exactly_once() -> None:
    assert Evidence(3, complaints=("register(): it refuses",)).guarantee is Guarantee.AT_LEAST_ONCE
    assert Evidence(3, failure="no space left").guarantee is Guarantee.NONE


def test_trials_of_different_guarantees_leave_none_of_them() -> None:
    losing, repeating = Evidence(3, lost=1), Evidence(3, twice=1)
    assert Guarantees("Rows", {"kills": Evidence(3), "resumes": losing}).weakest is Guarantee.AT_MOST_ONCE
    assert Guarantees("Rows", {"kills": repeating, "resumes": losing}).weakest is Guarantee.NONE
    assert Guarantees("Rows", {"kills": Evidence(3)}).weakest is Guarantee.EXACTLY_ONCE


def test_a_report_names_lost_rows_and_the_number_of_announced_ones() -> None:
    evidence = judged(EXPECTED, RIGHT[:1], announced=4)
    report = str(Guarantees("Rows", {"kills": evidence}))
    assert "lost: rows 1, 2" in report
    assert "4 announced by alarms" in report


def test_an_alarm_that_is_raised_again_counts_its_rows_once() -> None:
    alarm = "output 5 to 9 of out/0 had left before the rollback"
    assert announced_by([alarm, alarm, "a spare process is gone"], 9) == 5
    assert announced_by([alarm, alarm.replace("out/0", "out/1")], 9) == 10


def test_an_alarm_without_an_end_counts_all_rows_from_its_number_on_once_for_each_task() -> None:
    alarm = "output from 5 on of out/0 may have left before the rollback and may leave again, with other content"
    assert announced_by([alarm, alarm, alarm.replace("out/0", "out/1")], 12) == 14


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "guarantee", "text"),
    [
        (Rows, Guarantee.EXACTLY_ONCE, "0 lost, 0 twice, 0 changed"),
        (Repeating, Guarantee.AT_LEAST_ONCE, "register(): it returned the next number"),
        (Changing, Guarantee.NONE, "changed: rows"),
    ],
)
def test_worlds_find_what_is_wrong_with_a_sink(
    tmp_path: Path, kind: Callable[[str], Rows], guarantee: Guarantee, text: str
) -> None:
    report = check_sink(
        lambda place: kind(str(tmp_path / place)), lambda place: stored(tmp_path / place), trials=(), worlds=range(3)
    )
    assert set(report) == {"kills in worlds", "rollbacks in worlds"}
    assert report["rollbacks in worlds"].guarantee is guarantee, report
    assert text in str(report)


@pytest.mark.slow
def test_worlds_call_a_source_that_ends(tmp_path: Path) -> None:
    def write(place: str, numbers: Any) -> None:
        (tmp_path / place).write_text("".join(f"{number}\n" for number in numbers))

    def write_all_but_one(place: str, numbers: Any) -> None:
        write(place, numbers[1:])

    def read(place: str) -> Any:
        return files.lines(tmp_path / place)

    report = check_source(read, write, int, is_live=False, trials=(), worlds=range(3))
    assert report.weakest is Guarantee.EXACTLY_ONCE, report
    report = check_source(read, write_all_but_one, int, is_live=False, trials=(), worlds=[0])
    assert report.weakest is Guarantee.AT_MOST_ONCE, report
    assert "lost: rows 0" in str(report)


def _no_rows(_place: str) -> list[Any]:
    return []


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: check_sink(lambda _: "rows", _no_rows), "'rows', but a sink is expected"),
        (lambda: check_source(lambda _: 7, print, int), "7, but a source is expected"),
        (lambda: check_sink(Rows, _no_rows, worlds=(), trials=["killing"]), "the trials are kills, rollbacks, resumes"),
        (lambda: check_sink(Rows, _no_rows, worlds=(), trials=(), outages={"kills": print}), "choose another one"),
        (lambda: check_source(Rows, print, int, worlds=[1]), "needs is_live=False"),
    ],
)
def test_a_check_that_cannot_run_is_refused(call: Callable[[], object], text: str) -> None:
    with pytest.raises(JobError, match=text):
        call()


@pytest.mark.slow
def test_a_reader_whose_rows_have_no_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="let it return pairs"):
        check_sink(lambda place: Rows(str(tmp_path / place)), lambda _: ["row"], trials=(), worlds=[0])
