"""Steps with state and without a name: one warning names them when a job starts."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from clonos import Job, Tumbling, blackhole, values


class NoHandle:
    """Stands for the handle of a job that would start processes."""

    def __init__(self, *arguments: Any) -> None:
        pass


def started(job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    monkeypatch.setattr("clonos.job.handle.Handle", NoHandle)
    with caplog.at_level(logging.WARNING, "clonos.run"):
        job.start(slots="process")
    return caplog.messages


def test_one_warning_names_all_steps_with_state_and_without_a_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job("unnamed")
    keyed = job.source(values([1])).map(abs).key_by(abs)
    keyed.count().sink(blackhole())
    keyed.window(Tumbling("1s")).count().sink(blackhole())
    keyed.reduce(max, name="largest").sink(blackhole())
    assert started(job, monkeypatch, caplog) == [
        "the steps count, window_count keep state under a name made from the place in the job: a changed job may not"
        ' find it when it resumes. Give each a name, as in .count(name="clicks").'
    ]


def test_a_job_whose_steps_with_state_have_names_is_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job("named")
    job.source(values([1])).map(abs).key_by(abs).count(name="counts").sink(blackhole())
    assert started(job, monkeypatch, caplog) == []


def test_of_many_steps_the_first_eight_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job("many")
    keyed = job.source(values([1])).key_by(abs)
    for _ in range(10):
        keyed.count().sink(blackhole())
    (message,) = started(job, monkeypatch, caplog)
    assert message.startswith("the steps count, count-2, ")
    assert "count-8 and 2 more keep state" in message
