"""Judges one mutant: the unit tests of the changed file, then those of the core, then simulated worlds.

Everything happens in a copy of the tree, which a judge has for itself. A mutant is caught by the first test that fails,
or by a run that takes several times as much processor time, or memory, as it takes without a mutant: it hangs.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutation.sites import Site, imported_as

UNIT_FOLDERS = ("core", "coordinator", "inflight", "values", "services", "operators", "host", "testing", "api")
QUICK_AND_BROAD = ("tests/unit/core/slot/test_slot_dialogues.py", "tests/unit/coordinator/test_dialogues.py")
PACKAGE_PATHS = (".", "services", "standby", "chaos")
NOT_COPIED = (".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", "build", "dist", ".clonos")

PROCESSOR_FACTOR = 5
PROCESSOR_S_MIN = 30
WALL_S_MAX = 1_800
MEMORY_BYTES_MAX = 6 << 30
"""Of addresses: a mutant that gathers for ever fails instead of the machine."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result for a mutant. ``by``: the test, the world or the limit that caught it; empty: it survived."""

    by: str
    seconds: float


@dataclass(frozen=True, slots=True)
class _Run:
    """One command on a copy, and the meaning of its failure."""

    name: str
    arguments: tuple[str, ...]


@dataclass
class Judge:
    """A copy of the tree at ``folder``, and how long each kind of run takes there without a mutant."""

    root: Path
    folder: Path
    worlds: int
    _processor_s: dict[str, float] = field(default_factory=dict)

    def prepare(self, other: Judge | None = None) -> None:
        """Copies the tree and runs everything once without a mutant, unless ``other`` has done so.

        Raises: RuntimeError if that fails, or if the copy does not run its own code.
        """
        shutil.copytree(self.root, self.folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
        compiling = ("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "clonos", "chaos", "standby")
        self._call(compiling, "compiling", writes_bytecode=True)
        shown = self._call(("-c", "import clonos.core.slot.slot; print(clonos.core.slot.slot.__file__)"), "the copy")[1]
        if not Path(shown.strip()).is_relative_to(self.folder):
            raise RuntimeError(f"a mutant in {self.folder} would not be seen: {shown.strip()} is imported")
        units = _units("all units", unit_files(self.folder))
        if other is not None:
            self._processor_s = other._processor_s
            self._call((*units.arguments, "--collect-only"), units.name, writes_bytecode=True)
            return
        for run in (units, _worlds(self.worlds)):
            before_s = _children_s()
            code, output = self._call(run.arguments, run.name, writes_bytecode=True)
            if code:
                raise RuntimeError(f"without a mutant {run.name} fail:\n{output[-3_000:]}")
            self._processor_s[run.name] = _children_s() - before_s

    def judge(self, path: str, site: Site) -> Verdict:
        """Plants the mutant, runs what may catch it, and takes it out again."""
        file = self.folder / path
        source = file.read_text("utf-8")
        began_s = time.monotonic()
        file.write_text(site.mutate(source), "utf-8")
        try:
            for run in self._runs(path):
                code, output = self._call(run.arguments, run.name)
                if code:
                    return Verdict(_who(code, output, run), time.monotonic() - began_s)
        finally:
            file.write_text(source, "utf-8")
        return Verdict("", time.monotonic() - began_s)

    def _runs(self, path: str) -> list[_Run]:
        units = unit_files(self.folder)
        patterns = list(imported_as(path))
        texts = {file: (self.folder / file).read_text("utf-8") for file in units}
        near = [file for file, text in texts.items() if any(pattern.search(text) for pattern in patterns)]
        first = list(dict.fromkeys((*near, *QUICK_AND_BROAD)))
        rest = [file for file in units if file not in first]
        return [_units("near units", first), _units("all units", rest), _worlds(self.worlds)]

    def _call(self, arguments: Sequence[str], name: str, writes_bytecode: bool = False) -> tuple[int, str]:
        """The exit code and the output; -9 and such for what was ended."""
        limit_s = self._processor_s.get("all units" if name == "near units" else name, WALL_S_MAX)
        processor_s = max(PROCESSOR_S_MIN, round(PROCESSOR_FACTOR * limit_s))

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (processor_s, processor_s + 5))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))

        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(str(self.folder / path) for path in PACKAGE_PATHS))
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if not writes_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=limit,
        )
        try:
            output, _ = process.communicate(timeout=WALL_S_MAX)
        except subprocess.TimeoutExpired:
            output = f"FAILED after {WALL_S_MAX} s"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        return process.returncode, output


def _units(name: str, files: Sequence[str]) -> _Run:
    options = ("-q", "-x", "-p", "no:cacheprovider", "--durations=0", "--tb=line")
    return _Run(name, ("-m", "pytest", *options, *files))


def _worlds(count: int) -> _Run:
    return _Run("worlds", ("-m", "tests.mutation.worlds", str(count)))


def unit_files(folder: Path) -> list[str]:
    """Returns the unit tests that judge a mutant, as paths relative to ``folder``, in the order in which they run."""
    found = [file for name in UNIT_FOLDERS for file in sorted((folder / "tests" / "unit" / name).rglob("test_*.py"))]
    return [file.relative_to(folder).as_posix() for file in found]


def _who(code: int, output: str, run: _Run) -> str:
    """The test or the world that failed, or what limit was reached."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"{run.name}: it hangs"
    found = re.search(r"^(?:FAILED|ERROR) (.+)$", output, re.MULTILINE)
    return f"{run.name}: {found[1][:200]}" if found else f"{run.name}: exit code {code}"


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
