"""The command ``clonos replay``: its text, JSON and exit codes, in this process and in others."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from clonos.cli import main
from clonos.core.model.errors import JobError
from clonos.io.epochs.record_parts import HEAD
from clonos.replay.loading import load_epoch
from clonos.replay.replay_session import replay, report_on
from tests.harnesses.recorded_jobs import record_job
from tests.harnesses.recorded_prices import ROWS, UNKNOWN, job

ROOT = Path(__file__).parents[3]


@pytest.fixture
def failed(tmp_path: Path) -> Path:
    return record_job(job([*ROWS, UNKNOWN]), tmp_path / "records", barriers={3: 1}, epoch=1)["priced/0"]


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return record_job(job(), tmp_path / "records", barriers={3: 1}, epoch=1)["priced/0"]


def test_the_text_reports_what_was_replayed_and_the_end(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(failed)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "priced/0, epoch 1 of prices: 37 records, 0 calls, from 22:13:20.004 to 22:13:20.008"
    assert lines[1] == "replayed: 4 steps, 32 elements of its output equal byte by byte"
    assert lines[2] == "then at record 37 KeyError: 'eur', as it happened"
    assert lines[3].endswith('recorded_prices.py", line 16, in priced')
    assert lines[-1] == "nothing outside was asked"


def test_json_has_the_same_and_nothing_else_is_printed(failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(failed), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["epoch"], found["records"], found["equal"]) == ("priced/0", 1, 37, 32)
    assert found["error"] == {
        "text": "KeyError: 'eur'",
        "at": "tests.harnesses.recorded_prices:16 in priced",
        "record": 37,
    }
    assert (found["as_recorded"], found["differences"], found["refused"]) == (True, [], [])


CHANGED = """
from clonos import Job, clock, collect, values
from clonos import random

RATES = {"usd": 1.0, "gbp": 1.5}

def priced(row):
    print("priced was called")
    rate = RATES.get(row["currency"], 2.0)
    return {"name": row["name"], "euros": row["n"] * rate, "at": clock.time_ns()}

def total(name, so_far, row):
    found = (so_far or 0) + row["euros"]
    return found, (name, found)

job = Job("prices")
keyed = job.source(values([]), name="shop").rebalance().map(priced, name="priced").key_by("name")
keyed.stateful_map(total, name="total").rebalance().sink(collect(), name="out")
"""


def test_changed_code_of_a_file_has_exit_code_1_and_the_line(
    failed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "changed_prices.py"
    file.write_text(CHANGED)
    assert main(["replay", str(failed), "--code", str(file)]) == 1
    text = capsys.readouterr().out
    assert "record 37 differs (the end of the replay)\n  was  KeyError: 'eur'\n  is   no error" in text
    assert "at   changed_prices.py:8 in priced" in text
    assert main(["replay", str(failed), "--code", str(file), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["differing"] == 1, "what user code prints is not in it"


def test_pdb_opens_at_the_failure_and_step_has_a_prompt(
    failed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p row['currency']\nquit\n"))
    assert main(["replay", str(failed), "--pdb"]) == 0
    assert "(replay-pdb) 'eur'" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO("quit\n"))
    assert main(["replay", str(failed), "--step"]) == 0
    assert "1: record 1 of the step priced" in capsys.readouterr().out


def test_an_unknown_kind_and_a_missing_folder_are_errors(
    failed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(failed), "--allow", "clock"]) == 1
    assert "--allow clock: give time" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "nowhere")]) == 3
    assert "nowhere cannot be used: there is no such folder" in capsys.readouterr().err


def _command(arguments: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "services", ROOT / "standby", ROOT / "chaos"))
    return subprocess.run(
        [sys.executable, "-m", "clonos.cli", "replay", *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_record_is_replayed_from_another_folder_in_a_process_of_its_hash_seed(failed: Path, tmp_path: Path) -> None:
    """The modules of the job come along in the record: the process cannot import them."""
    head = json.loads((failed / HEAD).read_text())
    (failed / HEAD).write_text(json.dumps(head | {"versions": head["versions"] | {"hash_seed": "77"}}))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(failed, elsewhere / "copy")
    done = _command(["copy"], elsewhere, TZ="Pacific/Kiritimati", PYTHONHASHSEED="5")
    assert done.returncode == 0, done.stderr
    assert "32 elements of its output equal byte by byte" in done.stdout
    assert "as it happened" in done.stdout
    assert "note:" not in done.stdout, "it has the hash seed of the record"


def test_changed_code_and_another_process_are_not_compared_at_once(
    failed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["replay", str(failed), "--code", "prices.py", "--elsewhere"])
    assert "--elsewhere: not allowed with argument --code" in capsys.readouterr().err
    with pytest.raises(JobError, match="give one of them"):
        replay(failed, code="prices.py", elsewhere=True)


def test_a_job_in_threads_has_no_hash_seed_to_repeat(failed: Path) -> None:
    epoch = load_epoch(str(failed))
    assert epoch.hash_seed == ""
    versions = {**epoch.head.versions, "hash_seed": "random"}
    drawn = epoch._replace(head=msgspec.structs.replace(epoch.head, versions=versions))
    assert drawn.hash_seed == ""
    (note,) = [each for each in report_on(drawn, None, frozenset()).notes if "hash seed" in each]
    assert 'Run the job with slots="process"' in note
