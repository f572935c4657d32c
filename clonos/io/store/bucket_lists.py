"""Lists of a bucket that are of use as they are: without the empty objects that mark folders, and with every key.

Consoles, Hadoop and tools that synchronize folders create an empty object for a folder: ``in/``, or ``in_$folder$``.
obstore gives ``in/`` as ``in``, and gives no list at all if one key is not a path of its own, such as ``in//a.txt``.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from clonos.io.store.object_status import ObjectStatus

INVALID_KEY: Final = "invalid path"
"""Text of the error by which obstore refuses a list because of one key."""
UNREADABLE: Final = re.compile(r"[\x00-\x1f\x7f]|(^|/)\.{0,2}(/|$)")
"""What no key that obstore reads has: control characters, and empty names, ``.`` and ``..`` between slashes."""
HADOOP_MARK: Final = "_$folder$"
SHOWN_KEYS: Final = 3

logger = logging.getLogger("clonos.run")


def is_readable(key: str) -> bool:
    """Returns whether obstore can read the object of a key."""
    return UNREADABLE.search(key) is None


def readable_keys(place: str, keys: Sequence[str]) -> list[str]:
    """Returns the keys that can be read, and warns of the others."""
    if others := [key for key in keys if not is_readable(key)]:
        _warn_of(place, ", ".join([repr(key) for key in others[:SHOWN_KEYS]] + ["..."] * (len(others) > SHOWN_KEYS)))
    return [key for key in keys if is_readable(key)]


@functools.lru_cache
def _warn_of(place: str, keys: str) -> None:
    """Warns once in this process."""
    logger.warning("%s has objects that no source reads, because their names are not paths: %s", place, keys)


def without_folder_marks(
    found: Iterable[tuple[str, ObjectStatus]], folder: str, folders: Iterable[str], is_missing: Callable[[str], bool]
) -> dict[str, ObjectStatus]:
    """Returns the objects that are files, by their keys, which are sorted.

    ``folders`` are keys of folders that are known to have objects. ``is_missing`` looks up whether there is no object
    with exactly this key: that of an empty object may have had a slash at its end.
    """
    # Of a file and a mark of the same key, the file has content.
    objects = dict(sorted(found, key=lambda each: (each[0], each[1].size_bytes)))
    parents = {*folders, *(key[: match.start()] for key in objects for match in re.finditer("/", key))}
    return {
        key: status
        for key, status in objects.items()
        if status.size_bytes
        or not (key == folder or key in parents or key.endswith(HADOOP_MARK) or (is_readable(key) and is_missing(key)))
    }


def listed_by_arrow(files: Any, bucket: str, folder: str) -> dict[str, ObjectStatus]:
    """Returns all objects below a folder, also those that obstore cannot read, through a file system of pyarrow.

    It gives no versions. Raises: OSError.
    """
    from pyarrow.fs import FileSelector, FileType

    selector = FileSelector(f"{bucket}/{folder}".rstrip("/"), allow_not_found=True, recursive=True)
    found = files.get_file_info(selector)
    return {
        entry.path[len(bucket) + 1 :]: ObjectStatus(entry.size, entry.mtime_ns, "")
        for entry in found
        if entry.type == FileType.File
    }


def names_directly_in(folder: str, found: Mapping[str, ObjectStatus]) -> tuple[list[str], list[str]]:
    """Returns the names of the objects directly in a folder, and those of its folders, of all that are below it."""
    begin = len(folder) + 1 if folder else 0
    rest = [key[begin:].partition("/") for key in found]
    return sorted({name for name, slash, _ in rest if not slash}), sorted({name for name, slash, _ in rest if slash})
