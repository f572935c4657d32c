"""setup.cfg agrees with the folders of the packages."""

import ast
import configparser
import os
import re
import subprocess
import sys

import pytest

from tests.tidy.source import PACKAGE_FOLDERS, ROOT, sources

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


def test_every_module_belongs_to_a_layer(setup: configparser.ConfigParser) -> None:
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


def test_the_package_ships_its_types() -> None:
    assert [name for name, folder in PACKAGE_FOLDERS.items() if not (folder / "py.typed").exists()] == []


DISTRIBUTION_OF = {
    "zmq": "pyzmq",
    "hdfs_native": "hdfs-native",
    "toxiproxy": "toxiproxy-python",
    "py4j": "pyspark",
    "google": "protobuf",
    "nats": "nats-py",
    "prometheus_client": "prometheus-client",
}
"""What has another name for pip than in code, or comes with another distribution."""

RUNTIME = ("clonos", "clonos_services", "clonos_standby")


def _imported_by(*packages: str) -> set[str]:
    """Packages that must be installed for ours: all imports, those within functions too."""
    names = set()
    for source in sources():
        if source.is_under(*(PACKAGE_FOLDERS[package].relative_to(ROOT).as_posix() for package in packages)):
            for node in source.nodes:
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    names.add((node.module or "").partition(".")[0])
    foreign = names - sys.stdlib_module_names - PACKAGE_FOLDERS.keys()
    return {DISTRIBUTION_OF.get(name, name) for name in foreign}


def _required(text: str) -> set[str]:
    return {re.split(r"[\[<>=]", line, maxsplit=1)[0] for line in _lines(text)}


def test_a_run_requires_exactly_the_packages_it_imports(setup: configparser.ConfigParser) -> None:
    # pytest loads the plugin itself; type checkers bring the second; the extras are for stores, codecs and connectors.
    others = {"pytest", "typing_extensions"}
    for extra in (
        "avro",
        "delta",
        "hdfs",
        "kafka",
        "nats",
        "postgres",
        "protobuf",
        "rabbitmq",
        "server",
        "sftp",
        "websocket",
        "xml",
    ):
        others |= _required(setup["options.extras_require"][extra])
    spark = _required(setup["options.extras_require"]["spark"])
    assert spark == {"pyspark"}
    assert _imported_by(*RUNTIME) - others - spark == _required(setup["options"]["install_requires"])


def test_crash_tests_and_failure_injection_require_the_packages_they_import(setup: configparser.ConfigParser) -> None:
    extras = setup["options.extras_require"]
    assert _required(extras["testing"]) <= _required(extras["chaos"])
    more = _imported_by("clonos_chaos") - _required(setup["options"]["install_requires"])
    assert more == _required(extras["chaos"])
