"""Log lines of the command line, as text and as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from clonos.cli import JOB_AT_FAULT, main
from clonos.cli.log_lines import JSON_LINES, JsonFormatter, is_json, log_to_console, report
from clonos_standby.driver.printed_lines import PRINTED_LINES


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, level = logging.getLogger(), logging.getLogger("clonos").level
    handlers, formatters = root.handlers[:], [handler.formatter for handler in PRINTED_LINES.handlers]
    yield
    root.handlers[:] = handlers
    logging.getLogger("clonos").setLevel(level)
    for handler, formatter in zip(PRINTED_LINES.handlers, formatters, strict=True):
        handler.formatter = formatter
    JSON_LINES.job = ""


def record(text: str, **attributes: object) -> logging.LogRecord:
    found = logging.LogRecord("clonos.job", logging.WARNING, "", 0, "%s", (text,), None)
    found.created = 1_700_000_000.25
    found.__dict__.update(attributes)
    return found


def test_a_json_line_has_the_place_of_a_record_and_the_line_without_it() -> None:
    formatter = JsonFormatter()
    formatter.job = "orders"
    line = record("ask/0: banned", task="ask/0", incarnation="1.3", epoch=0, line="banned")
    assert json.loads(formatter.format(line)) == {
        "at": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "clonos.job",
        "job": "orders",
        "task": "ask/0",
        "incarnation": "1.3",
        "epoch": 0,
        "text": "banned",
    }


def test_a_json_line_leaves_out_what_is_not_known_and_stays_one_line() -> None:
    line = JsonFormatter().format(record("two\nlines", task="", epoch=None, fields={"path": object}))
    assert "\n" not in line
    assert set(json.loads(line)) == {"at", "level", "logger", "fields", "text"}


def test_an_exception_is_in_its_json_line() -> None:
    error = ValueError("why")
    found = logging.LogRecord("clonos.job", logging.ERROR, "", 0, "failed", None, (ValueError, error, None))
    assert "ValueError: why" in json.loads(JsonFormatter().format(found))["traceback"]


def test_printed_lines_and_reports_are_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_console(False, "json")
    assert is_json()
    PRINTED_LINES.info("%s", "[ask/0] seen", extra={"task": "ask/0", "line": "seen"})
    report("  0.5 s, 1 checkpoint")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["text"] for line in lines] == ["seen", "0.5 s, 1 checkpoint"]
    log_to_console(False)
    report("  0.5 s")
    assert capsys.readouterr().err == "  0.5 s\n"


def test_the_error_of_a_command_is_a_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--log-format", "json", "run", "missing.py"]) == JOB_AT_FAULT
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], "missing.py" in line["text"]) == ("ERROR", True)
