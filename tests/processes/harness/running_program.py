"""Python programs of documents and examples, run in a folder as a reader would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.speed import scaled
from tests.tidy.source import PACKAGE_FOLDERS

LIMIT_S: Final = scaled(100.0)
ENVIRONMENT: Final = {"PYTHONPATH": os.pathsep.join(str(package.parent) for package in PACKAGE_FOLDERS.values())}


def run_program(folder: Path, *arguments: str, **variables: str) -> tuple[str, str]:
    """Runs Python in a folder; returns its standard output and its standard error."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | ENVIRONMENT | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def run_job(folder: Path, file: str | Path, *options: str) -> tuple[str, str]:
    """Runs ``clonos run`` in a folder on child processes."""
    return run_program(folder, "-m", "clonos.cli", "run", str(file), "--slots", "process", *options)
