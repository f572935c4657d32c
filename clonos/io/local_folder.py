"""The folder of one process: it holds all that the process leaves on the local disk, and a lock while it lives.

Whoever comes later sweeps the folders whose lock nobody holds: their processes are dead, however they died.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from clonos.core.errors import EnvironmentFault

LOCK_SUFFIX = ".lock"


class FolderRefused(EnvironmentFault):
    """The root of the local folders is not safe to use."""

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(folder, reason)
        self.folder = folder
        self.reason = reason

    def __str__(self) -> str:
        return f"the local folder {self.folder} cannot be used: {self.reason}. Remove it or name another one."


class LocalFolder:
    """``path`` is this process's own, with mode 0700. ``close`` removes it."""

    def __init__(self, root: Path, name: str) -> None:
        _own_root(root)
        self.path = root / name
        self._lock_path = root / f"{name}{LOCK_SUFFIX}"
        self._lock = _make_lock(self._lock_path)
        # The lock is held before the folder exists, so no sweep can take it for a dead one's.
        self.path.mkdir(mode=0o700, exist_ok=True)

    def close(self) -> None:
        """Removes the folder and gives the lock back."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1


def default_root() -> Path:
    """Short, since sockets lie within, and one per user."""
    return Path(tempfile.gettempdir()) / f"clonos-{os.getuid()}"


def sweep(root: Path) -> list[str]:
    """Removes the folders of dead processes; answers their names."""
    if not root.is_dir():
        return []
    swept = []
    for lock_path in sorted(root.glob(f"*{LOCK_SUFFIX}")):
        lock = _take_lock(lock_path)
        if lock < 0:
            continue
        name = lock_path.name.removesuffix(LOCK_SUFFIX)
        shutil.rmtree(root / name, ignore_errors=True)
        lock_path.unlink(missing_ok=True)  # last: a folder without a lock file would never be swept
        os.close(lock)
        swept.append(name)
    return swept


def _own_root(root: Path) -> None:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = root.stat()
    if found.st_uid != os.getuid():
        raise FolderRefused(str(root), f"it belongs to user {found.st_uid}, expected {os.getuid()}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise FolderRefused(str(root), f"its mode is {stat.S_IMODE(found.st_mode):o}, others may enter; expected 700")


def _make_lock(path: Path) -> int:
    """A descriptor that holds a new lock. It is held before it has its name, so that no sweep comes between."""
    unnamed = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(unnamed, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.link(unnamed, path)
    except FileExistsError:
        os.close(descriptor)
        raise FolderRefused(str(path), "another process has this lock") from None
    finally:
        unnamed.unlink()
    return descriptor


def _take_lock(path: Path) -> int:
    """A descriptor that holds an existing lock, or -1 if its process lives or the file has gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor
