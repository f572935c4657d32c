"""Logging that is silent while a log is replayed."""

from __future__ import annotations

import logging

import cloudpickle
import pytest

from clonos.core.ports.recorder import running
from clonos_services import clock
from clonos_services.logger import logger
from tests.harnesses.fake_recorder import FakeRecorder


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "clonos.job")
    return caplog


def test_fields_are_in_the_text_and_in_the_record(logged: pytest.LogCaptureFixture) -> None:
    logger.info("banned 100 %", word="spam", times=2)
    logger.debug("not asked for")
    (record,) = logged.records
    assert record.getMessage() == "banned 100 % word='spam' times=2"
    assert vars(record)["fields"] == {"word": "spam", "times": 2}
    assert (record.name, record.levelname) == ("clonos.job", "INFO")
    assert record.filename == "test_logger.py"
    assert record.funcName == "test_fields_are_in_the_text_and_in_the_record"


def test_a_logger_is_silent_during_replay_and_logs_again_when_the_log_has_ended(
    logged: pytest.LogCaptureFixture,
) -> None:
    recorder = FakeRecorder()
    with running(recorder):
        clock.now()
        logger.warning("first life")
    with running(recorder.successor()):
        logger.error("in replay")
        clock.now()
        logger.info("live again")
    assert logged.messages == ["first life", "live again"]


def test_an_exception_is_logged_with_its_traceback(logged: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        logger.named("step").exception("failed", word="spam")
    (record,) = logged.records
    assert record.name == "clonos.job.step"
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError


def test_a_logger_is_pickled_by_name(logged: pytest.LogCaptureFixture) -> None:
    cloudpickle.loads(cloudpickle.dumps(lambda: logger.info("from afar")))()
    assert logged.messages == ["from afar"]
