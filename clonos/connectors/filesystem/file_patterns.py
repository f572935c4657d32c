"""Patterns of input files: the files that they match, and whether they could match a path that no longer exists."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Sequence

from clonos.connectors.connector_errors import InputMissing, InputUnreadable, InvalidConnector
from clonos.connectors.filesystem.output_parts import state_folder

HIDDEN = (".", "_")
"""Prefixes of file names that are not read from a folder."""


def find_files(
    connector: str, patterns: Sequence[str], in_folder: Callable[[str], list[str]], may_be_empty: bool = False
) -> list[str]:
    """Returns the absolute paths that match, each once, in order of the patterns, then of the paths.

    ``in_folder`` lists the input files of a folder. With ``may_be_empty`` a pattern without a match is no error.

    Raises: InputMissing: a pattern matches no file. InvalidConnector: it is a URL. InputUnreadable: a name is not
    UTF-8.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if "://" in pattern:
            raise InvalidConnector(
                connector, f"{pattern!r} is a URL", "Files are read from paths: mount it or copy it."
            )
        path = os.path.expanduser(pattern)
        if os.path.isdir(path):
            matches = in_folder(path)
        elif os.path.exists(path):
            matches = [path]
        else:
            matches = sorted(match for match in glob.glob(path, recursive=True) if not os.path.isdir(match))
        if not matches and not may_be_empty:
            raise InputMissing(pattern, os.getcwd(), _advice(path))
        found.update((os.path.abspath(match), None) for match in matches)
    for match in found:
        _check_name(match)
    return list(found)


def _advice(path: str) -> str:
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if os.path.isdir(state_folder(folder)):
        return f"{folder!r} is the output of a job, which has committed nothing yet that matches."
    return ""


def _check_name(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise InputUnreadable(repr(path), "its name is not UTF-8") from None


def could_match(patterns: Sequence[str], path: str) -> bool:
    """Returns whether ``find_files`` could return this path, judged by its text alone because the file may be gone."""
    folder, name = os.path.split(path)
    if os.path.abspath(path) != path:
        return False
    for pattern in patterns:
        wanted = os.path.abspath(os.path.expanduser(pattern))
        in_folder = folder == wanted and not name.startswith(HIDDEN)
        if path == wanted or in_folder or _matches(path.split("/"), wanted.split("/")):
            return True
    return False


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Matches folder by folder as ``glob`` does: ``**`` matches any number of folders, a wildcard no leading dot."""
    if not patterns:
        return not names
    if patterns[0] == "**" and _matches(names, patterns[1:]):
        return True
    if not names or (names[0].startswith(".") and not patterns[0].startswith(".")):
        return False
    if patterns[0] == "**":
        return _matches(names[1:], patterns)
    return fnmatch.fnmatchcase(names[0], patterns[0]) and _matches(names[1:], patterns[1:])
