"""Class archives: what Spark's JVMs load when they start, in a form that Java maps into memory (class-data sharing).

With them a local session and its executors start in about half of the time. ``make_class_archives`` makes them. Java
ignores an archive that does not fit its version or its jars. An archive is code, so it is used only from folders of
this user to which nobody else can write.
"""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path

import pyspark

from clonos.spark.java import java_path


class JvmRole(StrEnum):
    """Role of a JVM of Spark: each loads classes of its own."""

    DRIVER = "driver"
    EXECUTOR = "executor"


def archive_folder() -> Path | None:
    """Returns the folder of the archives for this Java and this Spark; None without Java or a home folder."""
    java = java_path()
    if java is None:
        return None
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    known = pyspark.__version__, pyspark.__file__, os.environ.get("SPARK_HOME"), str(java), java.stat().st_mtime_ns
    return cache / "clonos" / f"spark-{blake2b(repr(known).encode(), digest_size=8).hexdigest()}"


def archive_option(role: JvmRole) -> str:
    """Returns the option by which a JVM uses its archive; empty where there is none that is safe to use."""
    folder = archive_folder()
    if folder is None or any(character.isspace() for character in str(folder)):
        return ""
    file = folder / f"{role}.jsa"
    return f"-XX:SharedArchiveFile={file}" if all(map(_is_private, (folder.parent, folder, file))) else ""


def has_archives() -> bool:
    """Returns whether there is an archive for every role."""
    return all(map(archive_option, JvmRole))


def _is_private(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o022 and not stat.S_ISLNK(found.st_mode)
