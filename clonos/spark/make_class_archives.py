"""Program that makes class archives: ``python -m clonos.spark.make_class_archives``, once for a Java and a Spark.

It starts Spark on this machine with one executor, at the lowest priority, and lets its JVMs write their archives as
they end. The driver of a served job on Spark runs it when the tasks are live.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from clonos.core.model.errors import ClonosError
from clonos.io.system.process_identity import started_at
from clonos.spark.class_archive import JvmRole, archive_folder, has_archives
from clonos.spark.domain import executor_pid
from clonos.spark.session import OwnContext

MASTER: Final = "local-cluster[1,1,1024]"
END_LIMIT_S: Final = 120.0
LOOK_EVERY_S: Final = 0.1
LOWEST_PRIORITY: Final = 19
MAGIC_BYTES: Final = 4


def main(arguments: Sequence[str] = ()) -> str | None:
    """Makes what is missing. Returns why it was not made; None if it is there now, or another process makes it.

    Its priority is the lowest, because a job runs beside it, unless the arguments are ``--usual-priority``.
    """
    folder = archive_folder()
    if folder is None:
        return "There is no Java, or no home folder for the archives: set JAVA_HOME and HOME."
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(folder / "lock", "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not has_archives():
                if "--usual-priority" not in arguments:
                    os.nice(LOWEST_PRIORITY)
                _make(folder)
    except BlockingIOError:
        return None
    except (ClonosError, PySparkException, Py4JError, OSError, subprocess.TimeoutExpired) as error:
        return f"The archives in {folder} were not made: {error}"
    return None


def _make(folder: Path) -> None:
    """Makes archives beside their places, and puts them there when both are whole. Raises: SparkNotStarted; OSError."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        files = {role: Path(made, f"{role}.jsa") for role in JvmRole}
        own = OwnContext.start(
            "class archives", MASTER, "0", lambda role: f"-XX:ArchiveClassesAtExit={files[JvmRole(role)]}"
        )
        gateway: Any = SparkContext._gateway
        (executor,) = own.context.parallelize([0], 1).mapPartitions(_executor).collect()
        own.close()
        gateway.proc.stdin.close()  # with which its JVM ends
        gateway.proc.wait(END_LIMIT_S)
        if executor is None:
            raise OSError("the process of the executor is not to be seen; this needs /proc, as Linux has it")
        _wait_for_end(executor)
        for role, file in files.items():
            check_whole(file)
            file.replace(folder / f"{role}.jsa")


def check_whole(archive: Path) -> None:
    """Checks that a JVM has written all of an archive: its header, with a magic number, comes last.

    Raises: OSError: the JVM was killed before, which Spark does 10 s after it has told an executor to end.
    """
    with archive.open("rb") as file:
        if not any(file.read(MAGIC_BYTES)):
            raise OSError(f"the JVM was killed while it wrote {archive.name}; try again when the machine is less busy")


def _wait_for_end(pid: int) -> None:
    """Waits for the end of a process that was told to end, and whose number is not used again meanwhile."""
    deadline_s = time.monotonic() + END_LIMIT_S
    while started_at(pid):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the executor, process {pid}, has not ended within {END_LIMIT_S:g} s")
        time.sleep(LOOK_EVERY_S)


def _executor(_records: Iterable[int]) -> Iterator[int | None]:
    yield executor_pid()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
