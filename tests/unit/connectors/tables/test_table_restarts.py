"""Tables whose job is started afresh."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from clonos.connectors import sqlite
from clonos.operators.connector_contract import WriterIdentity


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def test_a_fresh_start_warns_that_it_appends_to_the_rows_of_an_earlier_one(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def start(job: str, **options: Any) -> str:
        caplog.clear()
        for task in ("words/1", "words/0"):
            writer = sqlite(path, "words", {"word": "TEXT"}, **options).immediate_writer()
            writer.register(WriterIdentity(job, task, 0, 1), 0)
            writer.write(0, [("a",)])
            writer.close()
        return caplog.text

    assert start("counts-5a") == ""
    assert "the table words has rows of an earlier start (counts-5a), and this start appends" in start("counts-1b")
    assert "upsert=" in start("counts-7c")  # although task 1 has rows already
    writer = sqlite(path, "words", {"word": "TEXT"}).immediate_writer()
    caplog.clear()
    writer.register(WriterIdentity("counts-7c", "words/0", 0, 2), 1)  # a successor
    writer.close()
    assert caplog.text == ""


def test_a_fresh_start_with_a_key_replaces_rows_and_does_not_warn(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for job in ("counts-5a", "counts-1b"):
        writer = sqlite(path, "words", {"word": "TEXT"}, upsert="word").immediate_writer()
        writer.register(WriterIdentity(job, "words/0", 0, 1), 0)
        writer.write(0, [("a",)])
        writer.close()
    assert caplog.text == ""
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT word FROM words").fetchall() == [("a",)]
