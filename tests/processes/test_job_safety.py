"""What other users of the machine, and those who choose a job's records, cannot do to it: on slot processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.connectors import collect, values
from clonos.job import Job

pytestmark = pytest.mark.processes


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A common folder for temporary files besides ``tmp_path``: its path is short, since sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        yield Path(folder)


def test_a_job_whose_local_folder_is_squatted_runs_elsewhere_and_deletes_nothing(
    temporary: Path, tmp_path: Path
) -> None:
    (temporary / "precious").write_text("years of work", "utf-8")
    squatted = temporary / f"clonos-{os.getuid()}"
    squatted.mkdir()
    os.chmod(squatted, 0o777)
    (squatted / "...lock").touch()
    job, output = Job("squatted", slots="process", store=tmp_path / "store"), collect()
    job.source(values(range(5))).sink(output)
    job.run()
    assert sorted(output.rows) == list(range(5))
    assert (temporary / "precious").exists()
    assert [path.name for path in squatted.iterdir()] == ["...lock"]
    instead = [path for path in temporary.glob("clonos-*") if path != squatted]
    assert len(instead) == 1, "driver and slots share one root"
    assert list(instead[0].iterdir()) == []
