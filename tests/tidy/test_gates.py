"""Tools that check the text of the project: format, lint, types and import contracts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE_ROOTS = [str(ROOT / folder) for folder in (".", "services", "standby", "chaos")]
GATES = {
    "format": [sys.executable, "-m", "ruff", "format", "--check", "--diff", "."],
    "lint": [sys.executable, "-m", "ruff", "check", "."],
    "types": [sys.executable, "-m", "mypy"],
    "floors": [str(Path(sys.executable).with_name("lint-imports")), "--no-logo"],
}

pytestmark = pytest.mark.static


@pytest.mark.parametrize("gate", GATES)
def test_the_tool_reports_no_problem(gate: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(PACKAGE_ROOTS)}
    verdict = subprocess.run(
        GATES[gate],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if verdict.returncode:
        pytest.fail(f"{gate}: {' '.join(GATES[gate])}\n{verdict.stdout}", pytrace=False)
