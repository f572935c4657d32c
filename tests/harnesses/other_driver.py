"""Another process that has its mark in a store, as the driver of a running job has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def another_driver(store: Path) -> Iterator[int]:
    """Another process that runs a job with this store, until it is killed."""
    code = (
        "import sys; from pathlib import Path;"
        "from clonos.io.store.driver_mark import DriverMark; from clonos.io.store.object_files import LocalFiles;"
        "DriverMark.claimed('etl', 'store', LocalFiles(Path(sys.argv[1])));"
        "print('marked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"marked\n"
        try:
            yield process.pid
        finally:
            process.kill()
