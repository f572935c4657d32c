"""Everyday mistakes: runs code as a user writes it, and checks what is printed about it.

``run_file`` is ``clonos run`` in this process, on child processes; ``run_script`` is ``python job.py`` in a process of
its own; ``describe`` only describes the job, which shows what is refused before anything starts. ``check`` compares
what they printed with the rules for every mistake: the sentence, the exit code, at most 12 lines, none of the library's
own frames or words.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from itertools import count
from pathlib import Path
from textwrap import dedent
from typing import Any, Final, NamedTuple

import clonos
from clonos.cli import main
from clonos.core.model.errors import ClonosError
from tests.tidy.source import PACKAGE_FOLDERS

LINES_MAX: Final = 12
LIBRARY_FRAME: Final = re.compile("|".join(f'File "{re.escape(str(folder))}' for folder in PACKAGE_FOLDERS.values()))
OWN_WORDS: Final = re.compile(r"poison|incarnation|\bmend|come to what|rows\[|\bslot \d{6,}", re.IGNORECASE)

_numbers = count(1)


class Printed(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    output: str
    errors: str


def run_file(folder: Path, code: str, *options: str) -> Printed:
    """Runs ``clonos run job.py --slots process`` with the file in ``folder``. Starts processes."""
    name = f"mistake_{next(_numbers)}"  # each file is a module of its own
    (folder / f"{name}.py").write_text(dedent(code), "utf-8")
    output, errors = io.StringIO(), io.StringIO()
    path = sys.path.copy()
    with contextlib.chdir(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            exit_code = main(["run", f"{name}.py", "--slots", "process", *options])
        finally:
            sys.path[:] = path
            sys.modules.pop(name, None)
    return Printed(exit_code, output.getvalue(), errors.getvalue())


def run_script(folder: Path, code: str) -> Printed:
    """Runs ``python job.py`` in ``folder``."""
    (folder / "job.py").write_text(dedent(code), "utf-8")
    paths = [str(package.parent) for package in PACKAGE_FOLDERS.values()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "CLONOS_SLOTS": "process"}
    done = subprocess.run(
        [sys.executable, "job.py"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Printed(done.returncode, done.stdout, done.stderr)


def describe(code: str, **names: Any) -> str:
    """Executes code that describes a job, with the public names of clonos, and returns the text of its error.

    An empty text means that nothing was refused.
    """
    public = {name: getattr(clonos, name) for name in clonos.__all__}
    try:
        exec(compile(dedent(code), "job.py", "exec"), public | names)  # noqa: S102  the code of the test itself
    except (ClonosError, AttributeError) as error:
        return str(error)
    return ""


def check(printed: Printed | str, *sentences: str, code: int | None = None) -> None:
    """Checks that a mistake was answered by these sentences, within the rules for every mistake."""
    text = printed if isinstance(printed, str) else printed.errors
    missing = [sentence for sentence in sentences if sentence not in text]
    assert not missing, f"expected {missing} in:\n{text}"
    lines = text.splitlines()
    assert len(lines) <= LINES_MAX, f"{len(lines)} lines:\n{text}"
    assert not LIBRARY_FRAME.search(text), f"frames of the library:\n{text}"
    assert not OWN_WORDS.search(text), f"words of the library's own:\n{text}"
    assert text.count("Traceback") <= 1, f"chained tracebacks:\n{text}"
    if code is not None and isinstance(printed, Printed):
        assert printed.code == code, f"exit code {printed.code}, expected {code}:\n{text}"
