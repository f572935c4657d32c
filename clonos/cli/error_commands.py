"""``clonos errors``: what an error output has, and its corrected records as new input of the job, each once.

Beside the folder of the error output lies ``FOLDER.redriven``. It has the journal of all rows that have gone in again,
and the files that are on their way. A file is complete before its rows are in the journal, and goes in by a rename
after that. So a redrive that was interrupted is completed by the next one.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import importlib.util
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import xxhash

from clonos.core.model.errors import EnvironmentFault, JobError

SUFFIX: Final = ".redriven"
ERROR_FIELDS: Final = frozenset({"step", "record", "error"})
TEXT_MAX: Final = 80


class RedriveRefused(JobError):
    """Rows of an error output cannot go in again."""

    folder: str
    reason: str

    def __str__(self) -> str:
        return f"the rows of the error output {self.folder} cannot go in again: {self.reason}"


class ErrorRow(NamedTuple):
    """Row of an error output. ``identity``: that of no other row, whenever it is read."""

    identity: str
    step: str
    record: Any
    error: str
    row: dict[str, Any]


def add_errors(commands: Any) -> None:
    """Adds the command to a parser."""
    errors = commands.add_parser("errors", help="show an error output, or give its corrected records to the job again")
    verbs = errors.add_subparsers(dest="verb", required=True, metavar="VERB")
    listing = verbs.add_parser("ls", help="count the rows by step and error")
    redrive = verbs.add_parser("redrive", help="write the records into an input folder, each once")
    for command in (listing, redrive):
        command.add_argument("folder", metavar="FOLDER", help="folder of the error output")
        command.add_argument("--step", metavar="NAME", help="only the rows of this step")
    redrive.add_argument("--into", required=True, metavar="FOLDER", help="folder that a source of the job reads")
    redrive.add_argument(
        "--correct",
        metavar="FILE:FUNCTION",
        help="function that gets a row as a dict (step, record, error, ...) and returns the record, or None to wait",
    )
    redrive.add_argument("--suffix", metavar=".X", help="of the new file (default: .txt for texts, else .jsonl)")


def run_errors(parsed: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    if parsed.verb == "ls":
        _list(parsed)
    else:
        _redrive(parsed)
    return 0


def _rows(folder: str, step: str | None) -> Iterator[ErrorRow]:
    """Yields the committed rows. Raises: RedriveRefused: it is another output."""
    from clonos.connectors.filesystem.committed_output import committed, read_committed

    rows = read_committed(folder)
    for part in committed(folder):
        for number in range(part.rows):
            row = next(rows)
            if not isinstance(row, dict) or not row.keys() >= ERROR_FIELDS:
                raise RedriveRefused(folder, "it has other rows. Give the folder of Job(errors=files.jsonl(FOLDER)).")
            if step in (None, row["step"]):
                identity = f"{part.checkpoint}-{part.task}-{part.xxh3}-{number}"
                yield ErrorRow(identity, row["step"], row["record"], row["error"], row)


def _list(parsed: argparse.Namespace) -> None:
    from clonos.cli.server_tables import rows_table, show

    gone = _journalled(_state_folder(parsed.folder))
    waiting, redriven = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in _rows(parsed.folder, parsed.step):
        (redriven if row.identity in gone else waiting)[row.step, row.error[:TEXT_MAX]] += 1
    kinds = sorted({*waiting, *redriven})
    cells = ([step, f"{waiting[step, error]:,}", f"{redriven[step, error]:,}", error] for step, error in kinds)
    show(rows_table(("step", "waiting", "redriven", "error"), cells))


def _redrive(parsed: argparse.Namespace) -> None:
    into = Path(parsed.into)
    if not into.is_dir():
        raise RedriveRefused(parsed.folder, f"{into} is not a folder. Name the folder that a source of the job reads.")
    correct = _function(parsed.folder, parsed.correct) if parsed.correct else _as_it_is
    with _locked(_state_folder(parsed.folder)) as state:
        delivered = _deliver_all(state)
        rows = [row for row in _rows(parsed.folder, parsed.step) if row.identity not in _journalled(state)]
        steps = sorted({row.step for row in rows})
        if len(steps) > 1:
            names = ", ".join(steps)
            raise RedriveRefused(
                parsed.folder, f"they are of the steps {names}: name one by --step, as their records differ."
            )
        records = [(row.identity, record) for row in rows if (record := _corrected(parsed, correct, row)) is not None]
        if records:
            _write(state, into, records, parsed.suffix)
            delivered += _deliver_all(state)
    waiting = len(rows) - len(records)
    more = f"; {waiting:,} wait, without a record" if waiting else ""
    print(f"{sum(count for _, count in delivered):,} records went in again{more}", file=sys.stderr)
    for file, _ in delivered:
        print(file)


def _as_it_is(row: dict[str, Any]) -> Any:
    return row["record"]


def _corrected(parsed: argparse.Namespace, correct: Callable[[dict[str, Any]], Any], row: ErrorRow) -> Any:
    try:
        return correct(row.row)
    except Exception as error:
        reason = f"{parsed.correct} raised {type(error).__name__}: {error}, for {row.row!r:.300}. Nothing was written."
        raise RedriveRefused(parsed.folder, reason) from error


def _function(folder: str, target: str) -> Callable[[dict[str, Any]], Any]:
    file, _, name = target.rpartition(":")
    specification = importlib.util.spec_from_file_location(Path(file).stem, file) if os.path.isfile(file) else None
    if specification is None or specification.loader is None:
        raise RedriveRefused(folder, f"--correct is {target!r}, but FILE:FUNCTION of a Python file is expected.")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise RedriveRefused(folder, f"{file} has no function {name!r}.")
    found: Callable[[dict[str, Any]], Any] = function
    return found


# ------------------------------------------------------------------ each row once


def _state_folder(folder: str) -> Path:
    if "://" in folder:
        raise RedriveRefused(folder, "it is in a bucket. Copy it into a local folder first.")
    return Path(f"{folder.rstrip('/')}{SUFFIX}")


@contextmanager
def _locked(state: Path) -> Iterator[Path]:
    """Creates the folder of the journal, and keeps other redrives out."""
    try:
        state.mkdir(exist_ok=True)
        with (state / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield state
    except OSError as error:
        raise EnvironmentFault(f"{error.filename or state} cannot be used: {error.strerror or error}.") from None


def _entries(state: Path) -> list[dict[str, Any]]:
    """Returns the journal. A line that was cut off by a crash is of a file that has not gone in."""
    try:
        lines = (state / "journal").read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _journalled(state: Path) -> set[str]:
    return {row for entry in _entries(state) for row in entry["rows"]}


def _write(state: Path, into: Path, records: list[tuple[str, Any]], suffix: str | None) -> None:
    """Writes the records into a file on its way, then their rows into the journal."""
    from clonos.connectors.json_text import json_text

    are_texts = all(isinstance(record, str) for _, record in records)
    number = len(_entries(state)) + 1
    digest = xxhash.xxh3_64_hexdigest("".join(identity for identity, _ in records).encode())
    name = (
        f"redriven-{state.name.removesuffix(SUFFIX)}-{number}-{digest}{suffix or ('.txt' if are_texts else '.jsonl')}"
    )
    lines = [record if isinstance(record, str) else json_text(record) for _, record in records]
    _append(state / name, "".join(f"{line}\n" for line in lines), "w")
    entry = {"file": name, "into": str(into.resolve()), "rows": [identity for identity, _ in records]}
    _append(state / "journal", f"\n{json.dumps(entry)}\n", "a")  # after whatever a crash has left of a line


def _append(file: Path, text: str, mode: str) -> None:
    with file.open(mode, encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


def _move(waiting: Path, there: Path) -> None:
    """Moves a file into a folder at once, where readers see all of it or nothing."""
    try:
        waiting.rename(there)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        hidden = there.with_name(f".{there.name}")  # on the file system of the folder
        shutil.copyfile(waiting, hidden)
        hidden.rename(there)
        waiting.unlink()


def _deliver_all(state: Path) -> list[tuple[str, int]]:
    """Moves the files on their way, whose rows are in the journal, into their folders; returns them with their rows."""
    delivered = []
    for entry in _entries(state):
        waiting, there = state / entry["file"], Path(entry["into"]) / entry["file"]
        if waiting.exists():
            _move(waiting, there)
            delivered.append((str(there), len(entry["rows"])))
    return delivered
