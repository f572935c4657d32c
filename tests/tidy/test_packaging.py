"""What setup.cfg says about the packages agrees with the folders."""

import configparser
import os
import re
import subprocess
import sys

import pytest

from tests.tidy.source import PACKAGE_FOLDERS, ROOT

pytestmark = pytest.mark.static


@pytest.fixture(scope="module")
def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", "utf-8")
    return parser


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_every_package_is_installed(setup: configparser.ConfigParser) -> None:
    on_disk = {
        ".".join([name, *file.parent.relative_to(folder).parts])
        for name, folder in PACKAGE_FOLDERS.items()
        for file in folder.rglob("*.py")
    }
    assert set(_lines(setup["options"]["packages"])) == on_disk


def test_every_module_has_a_floor(setup: configparser.ConfigParser) -> None:
    floors = set(re.findall(r"[\w.]+", setup["importlinter:contract:floors"]["layers"]))
    modules = {
        f"clonos.{entry.stem}"
        for entry in PACKAGE_FOLDERS["clonos"].iterdir()
        if (entry.suffix == ".py" and entry.stem != "__init__") or (entry / "__init__.py").exists()
    }
    modules |= PACKAGE_FOLDERS.keys() - {"clonos"}
    assert modules <= floors, f"give {sorted(modules - floors)} a floor in setup.cfg"


def test_importing_clonos_loads_neither_zmq_nor_pyspark() -> None:
    program = "import sys, clonos; sys.exit(', '.join({'zmq', 'pyspark', 'pyarrow'} & sys.modules.keys()) or 0)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(f.parent) for f in PACKAGE_FOLDERS.values())}
    loaded = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert loaded.returncode == 0, f"import clonos loads {loaded.stderr}"


def test_users_of_clonos_see_its_types() -> None:
    assert [name for name, folder in PACKAGE_FOLDERS.items() if not (folder / "py.typed").exists()] == []
