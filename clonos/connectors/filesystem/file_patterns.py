"""Patterns of input files: the files that they match, and whether they could match a path that no longer exists."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Callable, Sequence

from clonos.connectors.connector_errors import InputMissing, InputUnreadable, OutputFailed
from clonos.connectors.filesystem.output_files import state_folder
from clonos.connectors.object_stores.object_input import find_objects, is_there
from clonos.connectors.object_stores.urls import SFTP, WEB_SCHEMES, checked_input, is_url, name_of, split_url
from clonos.connectors.partitions.folder_names import is_partition

HIDDEN = (".", "_")
"""Prefixes of file names that are not read from a folder."""


def find_files(
    connector: str, patterns: Sequence[str], in_folder: Callable[[str], list[str]], may_be_empty: bool = False
) -> list[str]:
    """Returns the absolute paths and the URLs that match, each once, in order of the patterns, then of the paths.

    ``in_folder`` lists the input files of a folder. With ``may_be_empty`` a pattern without a match is no error.

    Raises: InputMissing: a pattern matches no file. InvalidConnector: it is a URL that cannot be read. InputUnreadable:
    a name is not UTF-8, or the object store fails.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if is_url(pattern):
            matches = _objects(connector, pattern, in_folder, may_be_empty)
            if not matches and not may_be_empty:
                raise InputMissing(pattern, os.getcwd(), _url_advice(pattern))
            found.update((match, None) for match in matches)
            continue
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
    if is_url(path):
        return any(_could_match_url(pattern, path) for pattern in patterns if is_url(pattern))
    folder, name = os.path.split(path)
    if os.path.abspath(path) != path:
        return False
    for pattern in patterns:
        if is_url(pattern):
            continue
        wanted = os.path.abspath(os.path.expanduser(pattern))
        in_folder = _is_folder_of(wanted, folder) and not name.startswith(HIDDEN)
        if path == wanted or in_folder or _matches(path.split("/"), wanted.split("/")):
            return True
    return False


def _objects(connector: str, pattern: str, in_folder: Callable[[str], list[str]], may_be_empty: bool) -> list[str]:
    url = checked_input(connector, pattern)
    try:
        if url.scheme in WEB_SCHEMES:  # without watch=, the request of the splits shows whether it is there
            return [pattern] if not may_be_empty or is_there(pattern) else []
        if url.scheme == SFTP:
            from clonos.connectors.object_stores.sftp_files import find_sftp_files  # its library takes long to load

            return find_sftp_files(connector, url, _matches)
        return find_objects(connector, url, in_folder, _matches)
    except OutputFailed as error:
        raise InputUnreadable(pattern, error.reason) from error
    except OSError as error:
        raise InputUnreadable(pattern, error.strerror or str(error)) from error


def _url_advice(pattern: str) -> str:
    return f"Correct the URL {name_of(pattern)}; its key may have the wildcards *, [] and **."


def _could_match_url(pattern: str, path: str) -> bool:
    wanted, found = split_url(pattern), split_url(path)
    if wanted.scheme in WEB_SCHEMES:
        return path == pattern
    if (wanted.scheme, wanted.bucket, wanted.options) != (found.scheme, found.bucket, found.options):
        return False
    folder, _, name = found.key.rpartition("/")
    in_folder = _is_folder_of(wanted.key, folder) and not name.startswith(HIDDEN)
    return found.key == wanted.key or in_folder or _matches(found.key.split("/"), wanted.key.split("/"))


def _is_folder_of(wanted: str, folder: str) -> bool:
    """Returns whether a folder is the wanted one, or one of its folders ``column=value``."""
    return folder == wanted or (
        folder.startswith(f"{wanted}/") and all(map(is_partition, folder[len(wanted) + 1 :].split("/")))
    )


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
