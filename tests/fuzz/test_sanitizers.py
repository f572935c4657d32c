"""The native kernels, built with the address and the undefined behaviour sanitizer: their tests and wrong inputs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.fuzz.engine import ROOT

pytestmark = pytest.mark.fuzz

KERNELS = ROOT / "clonos" / "kernels"
CHOICE = "tests/unit/kernels/test_choice.py"  # calls no kernel
FLAGS = [
    "-shared",
    "-fPIC",
    "-g",
    "-O1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-Wall",
    "-Wextra",
]
QUIET = ["-Wno-missing-field-initializers", "-Wno-cast-function-type"]  # of Python's own tables of methods
RUN = """
import sys
from importlib.util import module_from_spec, spec_from_file_location

path, *arguments = sys.argv[1:]
spec = spec_from_file_location("clonos.kernels._native", path)
sys.modules[spec.name] = module = module_from_spec(spec)
spec.loader.exec_module(module)
if arguments[0] == "crash":
    import ctypes
    ctypes.memset(ctypes.create_string_buffer(8), 0, 4096)
elif arguments[0] == "fuzz":
    from tests.fuzz.engine import run
    from tests.fuzz.everything import all_targets
    found = run(all_targets(["of_kernels", "of_row_kernels"]), int(arguments[1]), 1).found
    sys.exit("\\n".join(map(str, found.values())) or 0)
else:
    import pytest
    ended = pytest.main(arguments)
    from clonos.kernels import choice
    assert choice.native is module
    sys.exit(ended)
"""


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The extension, and the environment of a Python that can load it."""
    compiler = shutil.which("gcc")
    library = _printed(compiler, "-print-file-name=libasan.so") if compiler else ""
    if compiler is None or not os.path.isabs(library):
        pytest.skip("the sanitizers are not run: gcc or its libasan is missing (Debian: gcc with libasan8)")
    built = tmp_path_factory.mktemp("sanitized") / "_native.so"
    sources = [str(path) for path in sorted(KERNELS.glob("*.c"))]
    command = [compiler, *FLAGS, "-Werror", *QUIET, f"-I{sysconfig.get_path('include')}", *sources, "-o", str(built)]
    subprocess.run(command, check=True)
    environment = os.environ | {
        "LD_PRELOAD": os.path.realpath(library),
        # Python keeps memory until it ends, and reads what is freed by functions that are not watched.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:max_free_fill_size=4096:free_fill_byte=221",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # so that each bytes object has an allocation that is watched
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *(ROOT / name for name in ("services", "standby", "chaos"))))),
    }
    environment.pop("CLONOS_KERNELS", None)
    return built, environment


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _run(sanitized: tuple[Path, dict[str, str]], *arguments: str) -> subprocess.CompletedProcess[str]:
    built, environment = sanitized
    command = [sys.executable, "-c", RUN, str(built), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_sanitizer_is_at_work(sanitized: tuple[Path, dict[str, str]]) -> None:
    ended = _run(sanitized, "crash")
    assert ended.returncode != 0
    assert "AddressSanitizer" in ended.stderr


@pytest.mark.slow
def test_the_tests_of_the_kernels_pass_under_the_sanitizers(sanitized: tuple[Path, dict[str, str]]) -> None:
    options = ["-q", "-k", "not numpy", "-p", "no:cacheprovider", "--hypothesis-profile", "quick", "--ignore", CHOICE]
    ended = _run(sanitized, "tests/unit/kernels", *options)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    assert " passed" in ended.stdout


@pytest.mark.slow
def test_wrong_inputs_pass_under_the_sanitizers(sanitized: tuple[Path, dict[str, str]]) -> None:
    ended = _run(sanitized, "fuzz", "5000")
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
