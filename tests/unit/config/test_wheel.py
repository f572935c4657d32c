"""The wheel is complete: it runs jobs outside of the checkout, without Spark, and has types and scenarios."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE_FOLDERS, ROOT

pytestmark = pytest.mark.slow

BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"

WITHOUT = "import sys\nfor name in {names}: sys.modules[name] = None\n"
"""Makes modules that cannot be imported, as if they were not installed."""

SUFFIXES = (".css", ".html", ".js", ".py", ".pyi", ".svg", ".toml", ".yml", ".txt", ".typed")

JOB = """
from clonos import Job, stdout, values
job = Job("etl")
job.source(values([1, 2])).map(lambda number: number + 1).sink(stdout())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed wheel: a folder with the packages."""
    source = tmp_path_factory.mktemp("source")
    for folder in PACKAGE_FOLDERS.values():
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(folder, source / folder.relative_to(ROOT), ignore=ignored)
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-c", BUILD, source], cwd=source, check=True, capture_output=True)
    (built,) = source.glob("*.whl")
    installed = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(built).extractall(installed)
    return installed


def _run(wheel: Path, folder: Path, program: str, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(wheel)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_has_types_and_all_files_of_its_packages_but_those_that_test_the_project(wheel: Path) -> None:
    for name, folder in PACKAGE_FOLDERS.items():
        files = {file.relative_to(folder) for file in folder.rglob("*") if file.suffix in SUFFIXES}
        expected = {file for file in files if (name, file.parts[0]) != ("clonos_chaos", "project")}
        found = {file.relative_to(wheel / name) for file in (wheel / name).rglob("*") if file.is_file()}
        assert {file for file in found if file.suffix != ".so"} == expected


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_wheel_has_the_native_kernels_unless_the_environment_forbids_them(wheel: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from clonos.kernels.choice import kernels_in_use; print(kernels_in_use(), 'numpy' in sys.modules)"
    )
    assert _run(wheel, tmp_path, program) == "native kernels False\n"
    forced = "import os; os.environ['CLONOS_KERNELS'] = 'numpy'\n" + program
    assert _run(wheel, tmp_path, forced) == "numpy kernels (CLONOS_KERNELS is numpy) False\n"
    (extension,) = wheel.glob("clonos/kernels/_native*.so")
    moved = extension.rename(tmp_path / extension.name)
    try:
        assert "the native ones were not built: install a C compiler" in _run(wheel, tmp_path, program)
    finally:
        moved.rename(extension)


@pytest.mark.slow
def test_the_wheel_finds_its_scenarios(wheel: Path, tmp_path: Path) -> None:
    program = "from clonos_chaos.scenario.scenario_file import find_scenario; print(find_scenario('kill-each-step'))"
    assert _run(wheel, tmp_path, program) == f"{wheel}/clonos_chaos/scenarios/kill-each-step.toml\n"


@pytest.mark.slow
def test_clonos_and_its_public_names_need_neither_spark_nor_arrow(wheel: Path, tmp_path: Path) -> None:
    program = WITHOUT.format(names=("pyspark", "py4j", "pyarrow"))
    program += "import clonos\nfor name in clonos.__all__: getattr(clonos, name)\nprint(clonos.__file__)"
    assert _run(wheel, tmp_path, program) == f"{wheel}/clonos/__init__.py\n"


@pytest.mark.processes
def test_a_job_runs_in_child_processes_where_pyspark_is_not_installed(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB, "utf-8")
    program = WITHOUT.format(names=("pyspark", "py4j")) + "from clonos.cli import main; main()"
    printed = _run(wheel, tmp_path, program, "run", "job.py")
    assert printed.startswith("2\n3\netl runs in child processes (PySpark is not installed)\netl has finished")


@pytest.mark.slow
def test_a_job_on_spark_without_pyspark_names_the_extra(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB, "utf-8")
    program = WITHOUT.format(names=("pyspark", "py4j")) + "from clonos.cli import main; main()"
    printed = _run(wheel, tmp_path, program, "run", "job.py", "--slots", "spark")
    assert "needs pyspark, which is not installed: pip install 'clonos[spark]'" in printed
    assert "--slots process" in printed
