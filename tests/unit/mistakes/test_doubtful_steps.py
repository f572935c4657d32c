"""Steps whose results are hardly meant are taken, with a warning that says what becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, Sliding, Tumbling, blackhole, collect, files, values
from clonos.api.checks.doubtful_steps import doubts
from clonos.connectors.connector_errors import InvalidConnector
from clonos.core.model import bare_seconds
from clonos.core.model.errors import JobError
from clonos.job.description import graph_of
from tests.harnesses.mistakes import check, describe

RECORDS = [{"a": 1, "at": "2026-01-01T00:00:00Z"}]


def forgets(record: Any) -> None:
    record["b"] = 1


def returns(record: Any) -> Any:
    if record:
        return record
    return None


def doubts_of(step: Callable[[Any], Any], source: Any = None, **options: Any) -> list[str]:
    job = Job("etl")
    step(job.source(source or values(RECORDS), **options)).sink(collect())
    return doubts(graph_of(job))


NOTHING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "map": (
        lambda rows: rows.map(forgets),
        "the step map calls forgets, which returns nothing, so each of its results",
    ),
    "update": (lambda rows: rows.map(lambda row: row.update(b=1)), "which returns nothing, so each of its results is"),
    "sort": (lambda rows: rows.map(lambda row: row.sort()), "Return the record"),
    "print": (lambda rows: rows.map(print), "the step map calls print, which returns nothing"),
    "a call of print": (lambda rows: rows.map(lambda row: print(row)), "for a look use peek(function)"),
    "filter": (lambda rows: rows.filter(forgets), "so it leaves out every record. Return the condition."),
    "reduce": (lambda rows: rows.key_by("a").reduce(lambda old, new: old.update(new)), "so what it keeps is None."),
    "key_by": (lambda rows: rows.key_by(forgets).count(), "so all records have the key None. Return the key."),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_function_that_returns_nothing_is_warned_of(name: str) -> None:
    step, sentence = NOTHING[name]
    (text,) = doubts_of(step)
    check(text, sentence)


def test_functions_that_return_something_are_not_warned_of() -> None:
    assert doubts_of(lambda rows: rows.map(returns).filter(returns).map(dict).map(lambda row: row.get("a"))) == []
    assert doubts_of(lambda rows: rows.key_by(lambda row: None).count()) == []
    assert doubts_of(lambda rows: rows.peek(forgets)) == []
    job = Job("etl")
    job.source(values(RECORDS)).map(forgets, effects=True).sink(blackhole())
    assert doubts(graph_of(job)) == []


def windows(rows: Any) -> Any:
    return rows.key_by("a").window(Tumbling("1h")).count()


def test_windows_that_follow_the_clock_over_input_that_ends_are_warned_of(tmp_path: Path) -> None:
    sentence = "the windows of window_count follow the clock, because the stream has no timestamps, and its input"
    for source in (values(RECORDS), files.jsonl("in.jsonl"), files.csv("in.csv")):
        (text,) = doubts_of(windows, source)
        check(text, sentence, "Give the source timestamps=", 'time="processing"')
    sliding = Sliding("1h", every="10min")
    assert len(doubts_of(lambda rows: rows.map(dict).window(sliding).count())) == 1


def test_windows_that_are_meant_to_follow_the_clock_are_not_warned_of() -> None:
    assert doubts_of(windows, timestamps="at") == []
    assert doubts_of(lambda rows: rows.key_by("a").window(Tumbling("1h", time="processing")).count()) == []
    assert doubts_of(lambda rows: rows.key_by(str).window(Tumbling("1h")).count(), files.lines("in.txt")) == []
    assert doubts_of(windows, files.jsonl("in", watch="1s")) == []


@pytest.mark.parametrize(
    ("code", "number", "length"),
    [
        ("Tumbling(5000)", "5000", "1:23:20"),
        ("Timestamps('at', out_of_order=60_000)", "60000", "16:40:00"),
        ("Job('etl', checkpoint_every=10_000)", "10000", "2:46:40"),
    ],
)
def test_a_bare_number_that_looks_like_milliseconds_is_warned_of_once(
    code: str, number: str, length: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_seconds, "_warned", set())
    with caplog.at_level(logging.WARNING, "clonos.run"):
        assert describe(f"{code}\n{code}") == ""
    (warning,) = caplog.messages
    check(
        warning,
        f'{number} is a number of seconds, {length} hours: write "{number}ms" for milliseconds, or "{number}s".',
    )


def test_numbers_of_seconds_that_are_meant_are_taken_silently(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_seconds, "_warned", set())
    with caplog.at_level(logging.WARNING, "clonos.run"):
        assert describe("Tumbling(3600), Tumbling(86_400), Tumbling('5000s'), Job('etl', lease=900)") == ""
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("$HOME/out", "has $HOME, which nothing replaces. Write os.path.expandvars(...) around it."),
        ("out/{date}", "has {date}, which nothing replaces. Compute the path in Python; partition_by="),
    ],
)
def test_a_path_with_a_part_that_nothing_replaces_is_refused(path: str, problem: str) -> None:
    with pytest.raises(InvalidConnector) as raised:
        files.jsonl(path).folder()
    check(str(raised.value), problem)


def test_a_folder_whose_name_looks_like_a_placeholder_may_exist(tmp_path: Path) -> None:
    (tmp_path / "{date}").mkdir()
    assert files.jsonl(tmp_path / "{date}").folder() == str(tmp_path / "{date}")


def test_a_master_for_processes_is_refused() -> None:
    job = Job("etl")
    job.source(values([1])).sink(collect())
    with pytest.raises(JobError, match='master= is for slots="spark", and slots is "process"'):
        job.start(master="local[2]", slots="process")
