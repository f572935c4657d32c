"""Replays that go on where the log ends: stand-ins answer, and a call without one is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clonos import Job, clock, collect, http, random, service, values
from clonos.cli import main
from clonos.core.log.determinants import LogReader
from clonos.core.model.errors import JobError
from clonos.replay.epoch import Epoch
from clonos.replay.loading import load_epoch
from clonos.replay.replay_report import ReplayReport
from clonos.replay.replay_session import report_on
from clonos.testing import replay
from clonos_services.stand_ins import StandIns
from tests.harnesses.recorded_jobs import record_job

NUMBERS = list(range(12))
ASKED: list[int] = []


@service
def rate(number: int) -> float:
    ASKED.append(number)  # clonos: ok CLN502 it counts what a replay must not do
    return number * 1.5


def priced(number: int) -> tuple[int, float]:
    return number, rate(number)


def drawn(number: int) -> tuple[int, int, float]:
    return number, clock.time_ns(exact=True), random.random()


def raising(number: int) -> tuple[int, float]:
    return number, rate(number) / (number - 9)


def asking(number: int) -> tuple[int, str]:
    return number, http.get(f"http://rates/{number}").text


def recorded(function: Any, folder: Path, method: str = "map", **options: Any) -> Path:
    job = Job("prices")
    stream = job.source(values(NUMBERS), name="shop").rebalance()
    getattr(stream, method)(function, name="priced", **options).rebalance().sink(collect(), name="out")
    return record_job(job, folder)["priced/0"]


def cuts(epoch: Epoch) -> Iterator[Epoch]:
    """The record as it would be with each shorter log."""
    reader, ends = LogReader(epoch.log, 0), [0]
    while not reader.at_end:
        reader.next()
        ends.append(reader.offset_bytes)
    for end in ends:
        yield epoch._replace(log=epoch.log[:end])


def going_on(epoch: Epoch, **stand_ins: Any) -> ReplayReport:
    return report_on(epoch, None, frozenset(), go_on=StandIns(**stand_ins))


def rows_of(report: ReplayReport) -> list[Any]:
    return [row for made in report.replayed.made for row in made.rows]


@pytest.mark.parametrize("method", ["map", "map_async"])
def test_a_replay_goes_on_from_each_end_of_the_log_as_the_task_did(method: str, tmp_path: Path) -> None:
    epoch = load_epoch(recorded(priced, tmp_path, method))
    ASKED.clear()
    behind: list[int] = []
    for cut in cuts(epoch):
        answered: list[int] = []

        def stand_in(number: int, answered: list[int] = answered) -> float:
            answered.append(number)
            return number * 1.5

        report = going_on(cut, services={rate: stand_in})
        assert rows_of(report) == [(number, number * 1.5) for number in NUMBERS], report
        assert report.is_as_recorded, report
        assert report.replayed.gone_on is not None
        assert report.replayed.gone_on.answered["rate"] == len(answered)
        behind.append(len(report.rows_gone_on))
    assert (behind[0], behind[-1]) == (len(NUMBERS), 0)
    assert ASKED == []


@pytest.mark.parametrize("method", ["map", "map_async"])
def test_a_call_without_a_stand_in_ends_the_replay_and_is_named(method: str, tmp_path: Path) -> None:
    epoch = load_epoch(recorded(priced, tmp_path, method))
    ASKED.clear()
    report = going_on(epoch._replace(log=b""), services={"other": float})
    assert report.replayed.open_call == "rate"
    assert "it calls rate, which has no stand-in: give one by services={'rate': ...}" in str(report)
    assert "behind the end of the log: " in str(report)
    assert ASKED == []


def test_requests_have_one_stand_in(tmp_path: Path) -> None:
    with StandIns(http=lambda request: request.url).answering():
        epoch = load_epoch(recorded(asking, tmp_path))
    report = going_on(epoch._replace(log=b""), http=lambda request: request.url[-2:])
    assert report.rows_gone_on[3] == (None, (3, "/3"))
    assert report.replayed.gone_on is not None
    assert report.replayed.gone_on.answered == {"http.get": len(NUMBERS)}
    assert "it calls http.get, which has no stand-in: give one by http=" in str(going_on(epoch._replace(log=b"")))


async def asking_in_a_coroutine(number: int) -> tuple[int, str]:
    return asking(number)  # clonos: ok CLN505 the stand-in answers at once


@pytest.mark.parametrize("options", [{}, {"log_calls": True}, {"retries": 2}])
@pytest.mark.parametrize("function", [asking, asking_in_a_coroutine])
def test_requests_inside_asynchronous_calls_have_a_stand_in_too(
    function: Any, options: dict[str, Any], tmp_path: Path
) -> None:
    with StandIns(http=lambda request: request.url).answering():
        epoch = load_epoch(recorded(function, tmp_path, "map_async", **options))
    report = going_on(epoch._replace(log=b""), http=lambda request: request.url[-2:])
    assert report.rows_gone_on[3] == (None, (3, "/3"))
    assert report.replayed.gone_on is not None
    assert report.replayed.gone_on.answered == {"http.get": len(NUMBERS)}
    unanswered = going_on(epoch._replace(log=b""))
    assert unanswered.error is None
    assert unanswered.replayed.open_call == "http.get"
    assert "it calls http.get, which has no stand-in: give one by http=" in str(unanswered)


def test_the_clock_goes_on_and_the_same_random_numbers_come_each_time(tmp_path: Path) -> None:
    epoch = load_epoch(recorded(drawn, tmp_path))
    for cut in cuts(epoch):
        rows = rows_of(going_on(cut))
        assert rows == rows_of(going_on(cut))
        instants = [row[1] for row in rows]
        assert len(instants) == len(NUMBERS)
        assert instants == sorted(instants)


def test_an_error_behind_the_end_of_the_log_is_no_difference_from_the_record(tmp_path: Path) -> None:
    job = Job("prices")
    stream = job.source(values(NUMBERS), name="shop").rebalance()
    stream.map(raising, name="priced").rebalance().sink(collect(), name="out")
    epoch = load_epoch(record_job(job, tmp_path)["priced/0"])
    cut = epoch._replace(log=b"", head=msgspec.structs.replace(epoch.head, failure=None))
    report = going_on(cut, services={rate: lambda number: number * 1.5})
    assert report.replayed.number == 10
    assert isinstance(report.error, ZeroDivisionError)
    assert report.is_as_recorded
    assert "then at record 10 ZeroDivisionError" in str(report)


def test_the_command_takes_stand_ins_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(recorded(priced, tmp_path))
    file = tmp_path / "stand_ins.py"
    file.write_text("services = {'rate': lambda number: 2.0}")
    assert main(["replay", folder, "--go-on", "--stand-ins", str(file)]) == 0
    text = capsys.readouterr().out
    assert "behind the end of the log: 0 further records, 0 rows made; stand-ins answered no call" in text
    assert main(["replay", folder, "--go-on", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gone_on"] == {"records": 0, "answered": {}, "rows": []}
    assert main(["replay", folder, "--stand-ins", str(file)]) == 1
    assert "give --go-on with it" in capsys.readouterr().err
    file.write_text("rate = 5")
    assert main(["replay", folder, "--go-on", "--stand-ins", str(file)]) == 1
    assert "it has no stand-ins. Define services" in capsys.readouterr().err


def test_stand_ins_without_going_on_are_refused(tmp_path: Path) -> None:
    folder = recorded(priced, tmp_path)
    with pytest.raises(JobError, match="give go_on=True with them"):
        replay(folder, services={"rate": float})
    with pytest.raises(JobError, match="give one of them"):
        replay(folder, elsewhere=True, go_on=True)
