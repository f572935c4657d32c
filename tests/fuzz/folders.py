"""Folders for targets that read from disk: in memory if there is such a file system, removed at the end.

Where a path is a part of an input, the input has ``PLACEHOLDER`` instead: an input follows from its seed alone.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ROOT: Final = str(MEMORY) if MEMORY.is_dir() else tempfile.gettempdir()
NAME: Final = "clonos-fuzz-{pid:010}-{number:03}"
PLACEHOLDER: Final = f"{ROOT}/{NAME.format(pid=0, number=0)}".encode()

_numbers = itertools.count(1)


def new_folder() -> Path:
    """An empty folder of this process; its path is as long as the placeholder."""
    folder = Path(ROOT, NAME.format(pid=os.getpid(), number=next(_numbers)))
    folder.mkdir(mode=0o700)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def in_folder(data: bytes, folder: Path) -> bytes:
    """An input with the folder in place of the placeholder."""
    return data.replace(PLACEHOLDER, str(folder).encode())
