"""Each task of the demo's job, recorded, repeats itself in another process, on another date, without its systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos.demo.demo_server import DemoServerProcess
from clonos.demo.wordcount import wordcount
from tests.harnesses.recorded_jobs import record_job
from tests.harnesses.replays import replays_elsewhere

TEXT = "\n".join(f"the {word} is in the house of the {word}" for word in ("cat", "dog", "owl", "bee")) + "\n"


@pytest.mark.processes
@pytest.mark.keeps_sockets
def test_each_task_of_the_demo_repeats_itself_in_another_process(tmp_path: Path) -> None:
    (text := tmp_path / "text.txt").write_text(TEXT)
    (records := tmp_path / "records").mkdir()
    server = DemoServerProcess(tmp_path / "answers.log")
    try:
        job = wordcount([text], server.url, tmp_path / "output", tmp_path / "stop", 1)
        folders = record_job(job, records)
    finally:
        server.close()
    asked = (tmp_path / "answers.log").read_text()
    reports = dict(zip(folders, replays_elsewhere([*folders.values()], records), strict=True))
    assert [report["task"] for report in reports.values()] == [*reports]
    assert all(report["as_recorded"] for report in reports.values()), reports
    assert (tmp_path / "answers.log").read_text() == asked
    assert len(asked.splitlines()) == len(TEXT.split()) == reports["ask/0"]["calls"]
    assert all(report["not_compared"] == 0 for report in reports.values())
    assert reports["read/0"]["records"] == 4
    assert reports["read/0"]["equal"] == len(TEXT.split()) + 1, "the words and the end"
    assert reports["ask/0"]["equal"] >= 1
