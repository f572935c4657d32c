"""Features that need optional libraries name them and the command that installs them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clonos.core.model.errors import ExtraMissing
from tests.tidy.source import PACKAGE_FOLDERS

WITHOUT = "import sys; sys.modules[sys.argv[1]] = None; "


def _run_without(module: str, program: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(f.parent) for f in PACKAGE_FOLDERS.values())}
    command = [sys.executable, "-c", WITHOUT + program, module]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_crash_test_without_greenlet_is_refused_with_the_install_command() -> None:
    ended = _run_without("greenlet", "from clonos.testing import crash_test")
    sentence = str(ExtraMissing("clonos.testing.crash_test", "greenlet", "testing"))
    assert ended.stderr.splitlines()[-1] == f"clonos.core.model.errors.ExtraMissing: {sentence}"
    assert sentence.endswith("is not installed: pip install 'clonos[testing]'.")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["greenlet", "psutil"])
def test_failure_injection_without_its_libraries_is_a_one_line_environment_error(module: str) -> None:
    ended = _run_without(module, "from clonos.cli import main; sys.exit(main(['chaos', 'seeds', '--to', '0']))")
    expected = f"clonos: {ExtraMissing('clonos chaos seeds', module, 'chaos')}\n"
    assert (ended.returncode, ended.stderr) == (3, expected)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["starlette", "uvicorn", "fastapi", "prometheus_client"])
def test_a_server_without_its_libraries_is_a_one_line_environment_error(module: str) -> None:
    ended = _run_without(module, "from clonos.cli import main; sys.exit(main(['serve', '--folder', '/nonexistent/f']))")
    expected = f"clonos: {ExtraMissing('clonos serve', module, 'server')}\n"
    assert (ended.returncode, ended.stderr) == (3, expected)


@pytest.mark.slow
def test_a_job_runs_without_the_optional_libraries() -> None:
    program = "sys.modules['msgpack'] = None; import clonos, clonos.job, clonos_standby.slot.host, clonos.demo.show"
    assert _run_without("greenlet", program).returncode == 0
