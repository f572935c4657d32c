"""Checks of connectors on real processes: wrong sinks and sources are told from right ones, with the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from clonos import files, sockets, values
from clonos.testing import Evidence, Guarantee, check_sink, check_source
from tests.harnesses.small_sinks import Changing, Losing, Repeating, Rows, stored
from tests.processes.harness.line_server import LineServer

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


def test_a_live_source_that_ends_by_itself_has_not_passed() -> None:
    """The rows until then are complete, but the rest of the trial has not taken place."""
    with LineServer() as server:
        report = check_source(
            lambda _: sockets.lines("127.0.0.1", server.port, acknowledge=True),
            lambda _, numbers: server.let_out(numbers),
            int,
            trials=(),
            outages={"end": lambda: server.let_out(range(0), has_ended=True)},
        )
    assert "has ended without an error" in report["end"].failure
    assert report.weakest is Guarantee.NONE, report


def test_records_that_a_source_with_an_end_leaves_out_are_lost_also_if_the_job_ends_before_the_last_fault() -> None:
    written: list[int] = []

    def make(_: str) -> object:
        return values(written[:400])

    report = check_source(make, lambda _, numbers: written.extend(numbers), int, is_live=False, trials=["kills"])
    assert (report["kills"].rows, report["kills"].lost) == (1200, 800), report
    assert report.weakest is Guarantee.AT_MOST_ONCE, report


def test_a_job_that_fails_before_its_first_checkpoint_has_not_passed(tmp_path: Path) -> None:
    report = check_source(
        lambda _: files.lines(tmp_path / "none" / "*.txt"), lambda _, numbers: None, int, trials=["kills"]
    )
    assert "no file matches" in report["kills"].failure
    assert report.weakest is Guarantee.NONE, report
