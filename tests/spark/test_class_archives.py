"""Class archives on a real Java: they are made once, and a session that uses them runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

SESSION = """
from clonos.spark.make_class_archives import main
from clonos.spark.session import OwnContext
assert main() is None  # they are there
own = OwnContext.start("archived", "local[1]", "0")
print(own.context.getConf().get("spark.driver.extraJavaOptions"), own.context.parallelize(range(4), 1).sum())
own.close()
"""


def run(cache: Path, *arguments: str) -> str:
    """Output of a Python program whose cache folder this is."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.mark.timeout(180)
def test_archives_are_made_once_and_used(tmp_path: Path) -> None:
    run(tmp_path, "-m", "clonos.spark.make_class_archives", "--usual-priority")
    archives = {file.name: file for file in tmp_path.rglob("*.jsa")}
    assert sorted(archives) == ["driver.jsa", "executor.jsa"]
    made_ns = [file.stat().st_mtime_ns for file in archives.values()]
    used = run(tmp_path, "-c", SESSION)
    assert [file.stat().st_mtime_ns for file in archives.values()] == made_ns
    assert f"-XX:SharedArchiveFile={archives['driver.jsa']}" in used
    assert used.rstrip().endswith(" 6")
