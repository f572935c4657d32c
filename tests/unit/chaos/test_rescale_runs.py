"""Runs of rescales: which kills come, and how a run goes on that was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from clonos.io.process.fault_points import FaultPoint
from clonos.status import RescalePhase
from clonos_chaos.project.served import rescale_runs
from clonos_chaos.project.served.rescale_kills import KILLS, Victim, kills_of
from clonos_chaos.project.served.rescale_runs import Rescales, line_of, run_rescales, table_of
from clonos_chaos.project.served.rescale_slice import SliceRecord
from clonos_chaos.project.slices import SLICES_FILE, read_slices

AT_CUT = "driver, at metadata written"
GOOD = SliceRecord(4, done=2, given_up=1, kills={"driver, cutting": (0, 1), AT_CUT: (1, 0)}, plain=(1, 0), records=50)


def write(folder: Path, *records: SliceRecord, torn: bytes = b"") -> None:
    lines = [msgspec.json.encode(record) + b"\n" for record in records]
    (folder / SLICES_FILE).write_bytes(b"".join(lines) + torn)


def test_each_kill_comes_once_in_a_round_and_the_next_round_has_another_order() -> None:
    rounds = [kills_of(number * len(KILLS), len(KILLS)) for number in range(3)]
    assert all(sorted(map(str, found)) == sorted(map(str, KILLS)) for found in rounds)
    assert rounds[0] != rounds[1]
    assert kills_of(5, 10) == rounds[0][5:15]
    assert kills_of(len(KILLS) - 1, 2) == [rounds[0][-1], rounds[1][0]]


def test_kills_come_in_each_phase_of_a_change_and_while_slots_read_ahead() -> None:
    moments = {kill.when for kill in KILLS}
    assert moments >= set(RescalePhase) - {RescalePhase.DONE, RescalePhase.REFUSED}
    assert {kill.victim for kill in KILLS if kill.when is FaultPoint.READ_AHEAD} >= {Victim.HERE, Victim.DRIVER}


def test_a_line_that_was_not_written_whole_is_no_slice(tmp_path: Path) -> None:
    assert read_slices(tmp_path, SliceRecord) == []
    write(tmp_path, GOOD, torn=msgspec.json.encode(GOOD)[:-5])
    assert read_slices(tmp_path, SliceRecord) == [GOOD]


class FakeSlice:
    """A slice that does nothing but count."""

    made: ClassVar[list[tuple[int, int]]] = []
    failure = ""

    def __init__(self, number: int, folder: Path, kills: list[object], per_second: float) -> None:
        FakeSlice.made.append((number, len(kills)))
        self.record = SliceRecord(number, done=len(kills), failure=FakeSlice.failure)
        (folder / "file").touch()

    def run(self, on_change: object) -> SliceRecord:
        return self.record


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescale_runs, "RescaleSlice", FakeSlice)
    monkeypatch.setattr(FakeSlice, "made", [])
    monkeypatch.setattr(FakeSlice, "failure", "")


def test_a_run_goes_on_after_the_last_slice_until_there_are_enough_changes(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert run_rescales(Rescales(tmp_path, wanted=50))
    assert FakeSlice.made == [(5, 30), (6, 17)]
    assert [record.made for record in read_slices(tmp_path, SliceRecord)] == [3, 30, 17]
    assert not list(tmp_path.glob("slice-*")), "slices that were good leave nothing"
    assert run_rescales(Rescales(tmp_path, wanted=50))
    assert len(FakeSlice.made) == 2


def test_a_run_ends_after_a_few_bad_slices_whose_files_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSlice, "failure", "the job stands")
    assert not run_rescales(Rescales(tmp_path / "new", wanted=1_000))
    assert [number for number, _ in FakeSlice.made] == [1, 2, 3]
    assert len(list((tmp_path / "new").glob("slice-*/file"))) == 3
    assert "BAD: slice 1, the job stands; its files stay in" in capsys.readouterr().out


def test_one_bad_slice_of_an_earlier_run_makes_the_run_bad(tmp_path: Path) -> None:
    write(tmp_path, SliceRecord(1, done=1, lost=1), GOOD)
    assert not run_rescales(Rescales(tmp_path, wanted=4))
    assert FakeSlice.made == []


def test_the_figures_of_all_slices_are_one_line_and_each_kill_has_one() -> None:
    bad = SliceRecord(2, done=1, kills={"driver, cutting": (1, 0)}, contradicted=2, reasons={"busy": 2})
    assert line_of([GOOD, bad]) == (
        "4 changes, 3 done, 1 given up, 3 with a kill, 1 between cut and view; 2 slices, 1 bad; 50 records,"
        " 0 lost, 0 duplicated, 2 contradicted, 0 disordered"
    )
    assert table_of([GOOD, bad]) == [
        "driver, at metadata written: 1 done, 0 given up",
        "driver, cutting: 1 done, 1 given up",
        "no kill: 1 done, 0 given up",
        "given up 2 times: busy",
    ]
