"""Outputs of one job in each other's way, and rows that a fresh start appends again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clonos import Job, JobError, files, values
from clonos.core.model.options import Options
from clonos.job.description import graph_of


def job_with(*sinks: Any, errors: Any = None) -> Job:
    job = Job("etl", errors=errors)
    rows = job.source(values([{"a": 1}]))
    for sink in sinks:
        rows.map(dict).sink(sink)
    return job


def refusal(job: Job) -> str:
    with pytest.raises(JobError) as raised:
        graph_of(job).compile(Options())
    return str(raised.value)


def test_an_output_inside_another_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = refusal(job_with(files.jsonl(out / "late"), files.csv(out)))
    assert f"the step sink writes to {out}/late, which is inside {out}, the output of the step sink-2" in text
    assert "Give each output its own folder" in text
    assert "inside" in refusal(job_with(files.csv(out), files.csv(out / "a" / "b")))
    assert "inside" in refusal(job_with(files.csv(out), files.jsonl(out / "all.jsonl", single=True)))
    assert "the output of the step errors" in refusal(job_with(files.csv(out / "rows"), errors=files.jsonl(out)))


def test_an_output_inside_another_by_a_link_or_a_detour_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "out" / "sub")
    assert "inside" in refusal(job_with(files.csv(tmp_path / "out"), files.csv(tmp_path / "link")))
    assert "inside" in refusal(job_with(files.csv(tmp_path / "out"), files.csv(tmp_path / "x" / ".." / "out" / "y")))


def test_two_sinks_of_one_folder_are_refused(tmp_path: Path) -> None:
    text = refusal(job_with(files.csv(tmp_path / "out"), files.jsonl(tmp_path / "out")))
    assert f"writes to {tmp_path}/out, which is the output of the step sink too" in text


def test_outputs_beside_each_other_are_taken(tmp_path: Path) -> None:
    job = job_with(
        files.csv(tmp_path / "out"),
        files.csv(tmp_path / "out-late"),
        files.jsonl(tmp_path / "all.jsonl", single=True),
        files.jsonl(tmp_path / "other.jsonl", single=True),
        errors=files.jsonl(tmp_path / "errors"),
    )
    assert graph_of(job).compile(Options()) is not None
