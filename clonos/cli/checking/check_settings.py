"""Settings of ``clonos check`` from ``[tool.clonos.check]`` of the nearest pyproject.toml."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from clonos.api.checks.code.job_findings import JobFinding, is_chosen, is_of_file
from clonos.api.checks.code.replacements import THEMES
from clonos.core.model.errors import EnvironmentFault, JobError

KEYS: Final = ("select", "ignore", "per-file-ignores")
ALL: Final = ("CLN",)


class CheckSettings(NamedTuple):
    """Codes that are wanted: a code or the first characters of several. ``per_file``: those that a file may have."""

    select: tuple[str, ...] = ALL
    ignore: tuple[str, ...] = ()
    per_file: Mapping[str, tuple[str, ...]] = {}

    def wants(self, finding: JobFinding) -> bool:
        """Returns whether a finding is to be shown."""
        allowed = [code for pattern, codes in self.per_file.items() if is_of_file(finding, pattern) for code in codes]
        return is_chosen(finding, self.select, (*self.ignore, *allowed))


def settings_for(file: Path, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> CheckSettings:
    """Returns the settings for a file. ``select`` and ``ignore`` are those of the command line, which win.

    Raises: JobError: a key or a code is unknown. EnvironmentFault: the file cannot be read.
    """
    found, where = _table_of(file)
    for key in found.keys() - set(KEYS):
        near = difflib.get_close_matches(key, KEYS, n=1)
        raise JobError(
            f"{where} has {key!r}, which [tool.clonos.check] does not know: {(near or [', '.join(KEYS)])[0]}."
        )
    settings = CheckSettings(
        _codes(select or found.get("select", ALL), where, "select"),
        _codes(ignore or found.get("ignore", ()), where, "ignore"),
        {pattern: _codes(codes, where, pattern) for pattern, codes in _files(found, where).items()},
    )
    return settings


def _files(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    files = found.get("per-file-ignores", {})
    if not isinstance(files, dict):
        raise JobError(f'per-file-ignores of {where} is a table, such as {{ "tests/*.py" = ["CLN101"] }}.')
    return files


def _codes(given: Any, where: str, key: str) -> tuple[str, ...]:
    """Returns codes. Raises: JobError: one of them is the beginning of none."""
    if isinstance(given, str) or not all(isinstance(each, str) for each in given):
        raise JobError(f'{key} of {where} is a list of codes, such as ["CLN1", "CLN602"].')
    for each in given:
        if not each or not any(code.startswith(each) for code in THEMES):
            raise JobError(
                f"{key} of {where or 'the command line'} names {each!r}, and no code begins so: clonos check --codes."
            )
    return tuple(given)


def _table_of(file: Path) -> tuple[Mapping[str, Any], str]:
    for folder in file.resolve().parents:
        path = folder / "pyproject.toml"
        if not path.is_file():
            continue
        try:
            text = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise EnvironmentFault(f"the file {path} cannot be read: {error}. Correct it.") from None
        table: Mapping[str, Any] = text.get("tool", {}).get("clonos", {}).get("check", {})
        return table, str(path)
    return {}, ""
