"""Stops of a replay: in front of a record, where it failed, and step by step forwards and backwards."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from clonos.core.log.call_outcomes import decode_outcome, encode_outcome
from clonos.core.model.errors import JobError
from clonos.io.epochs.record_parts import FailedHere
from clonos.replay.debugging import examine, without_frames
from clonos.replay.loading import load_epoch
from clonos.replay.record_condition import condition_of
from clonos.replay.record_hooks import RecordAt
from clonos.replay.stepping import Stepper
from clonos.testing import replay
from tests.harnesses.recorded_jobs import record_job
from tests.harnesses.recorded_prices import ROWS, UNKNOWN, job


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    return record_job(job([*ROWS, UNKNOWN]), tmp_path, barriers={3: 1}, epoch=1)["priced/0"]


@pytest.fixture
def total(tmp_path: Path) -> Path:
    return record_job(job(), tmp_path, barriers={3: 1}, epoch=1)["total/0"]


def _type(commands: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(commands))


def test_the_debugger_stops_in_the_function_that_gets_the_record(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _type("p row\nwhere\ncontinue\n", monkeypatch)
    report = replay(failed, at="record=9")
    printed = capsys.readouterr().out
    assert "record 9 of the step priced: {'name': 'eve', 'n': 32, 'currency': 'usd'}" in printed
    assert "(replay-pdb) {'name': 'eve', 'n': 32, 'currency': 'usd'}" in printed
    assert "-> def priced(row" in printed
    assert "clonos/core" not in printed, "frames of clonos are left out"
    assert report.is_as_recorded


def test_each_record_for_which_an_expression_holds_is_a_stop(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _type("continue\n" * 9, monkeypatch)
    replay(failed, at="n > 56 and currency == 'gbp'")
    printed = capsys.readouterr().out.replace("(replay-pdb) ", "")
    assert [line for line in printed.splitlines() if line.startswith("record ")] == [
        "record 34 of the step priced: {'name': 'ann', 'n': 57, 'currency': 'gbp'}",
        "record 36 of the step priced: {'name': 'eve', 'n': 59, 'currency': 'gbp'}",
    ]


def test_before_failure_stops_at_the_record_that_raises(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _type("p row['currency']\ncontinue\n", monkeypatch)
    report = replay(failed, before_failure=True)
    assert "(replay-pdb) 'eur'" in capsys.readouterr().out
    assert report.replayed.number == 37
    assert isinstance(report.error, KeyError)


def test_quit_ends_the_replay(failed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _type("quit\n", monkeypatch)
    report = replay(failed, at="record=9")
    assert report.replayed.was_quit
    assert report.replayed.records == 16
    assert sys.gettrace() is None or "replay" not in repr(sys.gettrace())


def test_an_error_is_examined_in_the_frame_of_user_code(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = replay(failed)
    assert report.error is not None
    _type("p row\nquit\n", monkeypatch)
    examine(report.error)
    assert "(replay-pdb) {'name': 'ann', 'n': 60, 'currency': 'eur'}" in capsys.readouterr().out


def test_before_failure_needs_a_failure(total: Path) -> None:
    with pytest.raises(JobError, match="the replay did not fail at a record"):
        replay(total, before_failure=True)


def test_an_error_of_an_asynchronous_call_has_no_frame_to_stop_in_and_names_the_record() -> None:
    def raised(place: str) -> BaseException:
        try:
            if place == "in the step":
                raise KeyError("eur")
            decode_outcome(encode_outcome("priced", raised("in the step")))
        except KeyError as error:
            return error
        raise AssertionError("it raises")

    failure = FailedHere("KeyError: 'eur'", "priced", "{'n': 60}", None, 0, 1, "")
    of_call = raised("in a call")
    assert without_frames(of_call, failure) == "", "the step that makes the call is on the stack"
    assert of_call.__traceback__ is not None
    of_replay = of_call.with_traceback(of_call.__traceback__.tb_next)
    assert "call that with {'n': 60}, which it was given, under a debugger" in without_frames(of_replay, failure)
    assert "call that with its record" in without_frames(of_replay, None)
    of_step = raised("in the step")
    assert without_frames(of_step.with_traceback(None), failure) == "", "no call has raised it"


AT = RecordAt(7, "priced", ("ann", 1), {"n": 8, "name": "ann"})


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("record=7", True),
        ("record=8", False),
        ("record = 7", True),
        ("key=('ann', 1)", True),
        ("key=ann", False),
        ("step=priced", True),
        ("step=total", False),
        ("n > 7", True),
        ("n > 8", False),
        ("n == 8 and key[0] == 'ann'", True),
        ("missing > 8", False),
        ("record['n'] == 8", True),
        ("number == 7", True),
        ("n / 0", False),
    ],
)
def test_a_condition_holds_for_its_records(text: str, holds: bool) -> None:
    assert condition_of(text)(AT) is holds


@pytest.mark.parametrize(
    ("at", "note"),
    [
        (
            "curency == 'gbp'",
            "--at \"curency == 'gbp'\": the field 'curency' is missing in 37 of 37 records. Did you mean currency?",
        ),
        ("record['town'] == 1", "the field 'town' is missing in 37 of 37 records, whose fields are name, n, currency"),
        ("n / 0", "it raised ZeroDivisionError: division by zero for 37 of 37 records"),
        ("n > 99", "it held for none of 37 records"),
        ("record=99", "--at 'record=99': it held for none of 37 records"),
    ],
)
def test_the_report_explains_a_condition_that_holds_for_no_record(failed: Path, at: str, note: str) -> None:
    report = replay(failed, at=at)
    assert len(report.notes) == 1
    assert note in str(report)


def test_a_search_for_an_unknown_field_reports_it(total: Path) -> None:
    shown = _stepped(total, "find euro > 80\nquit\n")
    assert shown[-1] == "--at 'euro > 80': the field 'euro' is missing in 35 of 35 records. Did you mean euros?"


def test_a_condition_sees_the_attributes_of_a_record() -> None:
    assert condition_of("real == 1")(AT._replace(record=Row(1)))


class Row:
    """Record with attributes."""

    def __init__(self, real: int) -> None:
        self.real = real


@pytest.mark.parametrize("text", ["n >", "record=nine", ""])
def test_a_text_without_a_condition_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="--at"):
        condition_of(text)


def _stepped(folder: Path, commands: str) -> list[str]:
    output = io.StringIO()
    Stepper(load_epoch(folder), stdin=io.StringIO(commands), stdout=output).run()
    return output.getvalue().replace("(replay) ", "").splitlines()[1:]


def test_steps_show_the_state_before_and_after_each_record(total: Path) -> None:
    shown = _stepped(total, "next\nquit\n")
    assert [line.partition(", 'at'")[0] for line in shown] == [
        "1: record 1 of the step total, key 'ann': {'name': 'ann', 'euros': 24.0",
        "   state before: state = 108.0",
        "   state after:  state = 132.0",
        "2: record 2 of the step total, key 'bob': {'name': 'bob', 'euros': 37.5",
        "   state before: state = 112.0",
    ]


def test_back_shows_what_was_before(total: Path) -> None:
    forwards = _stepped(total, "next 4\nquit\n")
    shown = _stepped(total, "next 6\nback 2\nquit\n")
    assert shown[-2:] == forwards[-2:]
    assert shown[-2].startswith("5: record 5 of the step total")
    assert _stepped(total, "back\nquit\n")[-2] == forwards[0], "it stays at the first record"


def test_the_end_is_a_place_from_which_one_can_go_back(failed: Path) -> None:
    shown = _stepped(failed, "continue\nrecord\nstate\ndebug\nback\nquit\n")
    assert "the end: KeyError: 'eur'" in shown
    assert "the end" in shown
    assert shown[-2].startswith("37: record 37 of the step priced: {'name': 'ann', 'n': 60")


def test_find_and_goto_look_in_both_directions(total: Path) -> None:
    shown = _stepped(total, "find euros > 80\nfind euros > 80\ngoto 2\nfind euros >\nrecord\nstate eve\nquit\n")
    places = [line.partition(":")[0] for line in shown if line.partition(":")[0].isdigit()]
    found = [line for line in shown if " of the step total" in line]
    assert found[1].startswith("32: record 32 of the step total, key 'bob': {'name': 'bob', 'euros': 82.5")
    assert int(places[2]) > 32, "the next one"
    assert found[3].startswith("2: record 2 ")
    found = [found[0], found[1], *found[3:]]
    assert any("--at 'euros >' is no expression" in line for line in shown)
    assert found[3] == found[2].partition(": ")[2]
    assert shown[-1] == "   state = 128.0"


def test_going_to_a_record_beyond_the_last_one_names_the_last_one(failed: Path) -> None:
    shown = _stepped(failed, "goto 9999\nback\nquit\n")
    assert "record 9999 does not exist: the last record is 37. This is the end: KeyError: 'eur'" in shown
    assert shown[-2].startswith("37: record 37 of the step priced")


def test_a_function_can_be_debugged_from_a_step(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _type("p row['n']\ncontinue\n", monkeypatch)
    _stepped(failed, "debug\nquit\n")
    assert "(replay-pdb) 24" in capsys.readouterr().out


def test_a_hook_sees_each_record_once(total: Path) -> None:
    from clonos.replay.replaying import replay_epoch

    seen: list[Any] = []
    replayed = replay_epoch(load_epoch(total), hook=seen.append)
    assert [at.number for at in seen] == list(range(1, 37))
    assert replayed.records == 36
