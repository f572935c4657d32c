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

PROJECT = "clonos_chaos.project"
"""Tests of this project, which the wheel does not have."""


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
    tests_of_the_project = {name for name in on_disk if f"{name}.".startswith(f"{PROJECT}.")}
    assert len(tests_of_the_project) > 1
    assert set(_lines(setup["options"]["packages"])) == on_disk - tests_of_the_project


def test_the_wheel_has_no_mutants() -> None:
    program = """
from setuptools import Distribution
distribution = Distribution({"script_name": "setup.py"})
distribution.parse_config_files(["setup.cfg"])
command = distribution.get_command_obj("build_py")
command.ensure_finalized()
print(*command.get_outputs(include_bytecode=False), sep="\\n")
"""
    listed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {line.partition("/lib/")[2] for line in listed.stdout.splitlines()}
    assert {"clonos/testing/__init__.py", "clonos_chaos/user/harness.py", "clonos_chaos/py.typed"} <= files
    assert [file for file in files if "mutant" in file or file.startswith(PROJECT.replace(".", "/"))] == []


@pytest.mark.slow
def test_tests_of_users_and_commands_of_chaos_need_no_tests_of_the_project() -> None:
    program = f"""
import sys
from importlib import import_module
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {PROJECT!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
import clonos.testing, clonos_chaos.runs.cli
for name in clonos.testing.__all__:
    getattr(clonos.testing, name)
for module in ("swarm.seeds", "runs.soak", "runs.runner_simulated", "real.runner_processes"):
    import_module("clonos_chaos." + module)
from clonos.cli import main
sys.exit(main(["chaos", "all", "--worlds", "0"]))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(f.parent) for f in PACKAGE_FOLDERS.values())}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert "Run it in a checkout of the project" in ended.stderr, ended.stderr
    assert "Traceback" not in ended.stderr


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
    "opentelemetry": "opentelemetry-sdk",
    "paho": "paho-mqtt",
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
    # pytest loads the plugin itself; type checkers bring the second; frames of the third come from functions that
    # have imported it; the extras are for stores, codecs and connectors.
    others = {"pytest", "typing_extensions", "pandas"}
    for extra in (
        "avro",
        "delta",
        "hdfs",
        "iceberg",
        "kafka",
        "mqtt",
        "nats",
        "otel",
        "postgres",
        "protobuf",
        "rabbitmq",
        "redis",
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
