"""Checks of connectors on real processes: wrong sinks and sources are told from right ones, with the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from clonos import files
from clonos.testing import Evidence, Guarantee, check_sink, check_source
from tests.harnesses.small_sinks import Changing, Losing, Repeating, Rows, stored

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def evidence_of(kind: type[Rows], folder: Path, trial: str) -> Evidence:
    report = check_sink(
        lambda place: kind(str(folder / place)), lambda place: stored(folder / place), trials=[trial], worlds=()
    )
    return report[trial]


@pytest.mark.parametrize("trial", ["rollbacks", "resumes"])
def test_a_right_sink_has_each_row_once(tmp_path: Path, trial: str) -> None:
    evidence = evidence_of(Rows, tmp_path, trial)
    assert evidence.guarantee is Guarantee.EXACTLY_ONCE, evidence
    assert evidence.injected >= 2


def test_a_sink_that_keeps_rows_in_memory_loses_them_with_its_process(tmp_path: Path) -> None:
    evidence = evidence_of(Losing, tmp_path, "kills")
    assert evidence.guarantee is Guarantee.AT_MOST_ONCE, evidence


def test_a_sink_that_forgets_the_next_number_repeats_rows(tmp_path: Path) -> None:
    evidence = evidence_of(Repeating, tmp_path, "kills")
    assert evidence.guarantee is Guarantee.AT_LEAST_ONCE, evidence
    assert evidence.twice


def test_a_sink_that_does_not_withdraw_keeps_other_rows_than_the_job_after_a_rollback(tmp_path: Path) -> None:
    evidence = evidence_of(Changing, tmp_path, "rollbacks")
    assert evidence.guarantee is Guarantee.NONE, evidence
    assert evidence.replaced


def test_a_source_of_files_gives_each_line_once(tmp_path: Path) -> None:
    def write(place: str, numbers: Sequence[int]) -> None:
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / f"{numbers[0]}.new").write_text("".join(f"{number}\n" for number in numbers))
        (tmp_path / place / f"{numbers[0]}.new").rename(tmp_path / place / f"{numbers[0]}.txt")

    report = check_source(
        lambda place: files.lines(tmp_path / place / "*.txt", watch="100ms"), write, int, trials=["kills"]
    )
    assert report.weakest is Guarantee.EXACTLY_ONCE, report
