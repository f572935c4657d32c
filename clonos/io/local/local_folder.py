"""Local folder of one process: everything that the process writes to the local disk, locked while the process runs.

A later process sweeps folders whose lock is free, because their processes are dead. Other users can write to the parent
of the root, so the root is used only if it is a real folder of this user with mode 0700. All work below it is relative
to its descriptor, follows no link, and touches only names that this module creates.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from clonos.core.model.errors import EnvironmentFault

logger = logging.getLogger("clonos.io")

LOCK_SUFFIX: Final = ".lock"
FOLDER_NAME: Final = re.compile(r"[0-9a-f]{16}|driver-[0-9a-f]{12}", re.ASCII)
"""Name of a slot's folder, or of a driver's folder."""

STORY_NAME: Final = re.compile(r"slot-[0-9a-f]{16}\.story", re.ASCII)
"""Name of a file, beside the folders, with the last events of a slot."""
STORY_RETENTION_S: Final = 7 * 24 * 3600

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_LOCK: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderRefused(EnvironmentFault):
    """The root of the local folders is not safe to use."""

    folder: str
    reason: str

    def __str__(self) -> str:
        return (
            f"the local folder {self.folder} cannot be used: {self.reason}. Remove it or set TMPDIR to another folder."
        )


class LocalFolder:
    """Folder of this process below ``root``: ``path``, with mode 0700. ``close`` removes it."""

    def __init__(self, root: Path, name: str) -> None:
        """Creates the folder; ``name`` must match ``FOLDER_NAME``.

        Raises: FolderRefused when the root is unsafe, or another process has the lock.
        """
        assert FOLDER_NAME.fullmatch(name), name
        self.root = root
        self.path = root / name
        _make_root(root)
        with ExitStack() as on_failure:
            self._root = _open_private(root)
            on_failure.callback(os.close, self._root)
            self._lock = _make_lock(self._root, f"{name}{LOCK_SUFFIX}", self.path)
            on_failure.callback(os.close, self._lock)
            # The lock is held before the folder exists, so no sweep can remove the folder.
            os.mkdir(name, 0o700, dir_fd=self._root)
            on_failure.pop_all()

    def close(self) -> None:
        """Removes the folder and releases the lock."""
        if self._lock >= 0:
            shutil.rmtree(self.path.name, ignore_errors=True, dir_fd=self._root)
            _unlink(self._root, f"{self.path.name}{LOCK_SUFFIX}")
            os.close(self._lock)
            os.close(self._root)
            self._lock = -1


def default_root() -> Path:
    """Returns a private folder of this user and creates it if needed. Its path is short, because it has Unix sockets.

    The usual root is ``clonos-<uid>`` in the folder for temporary files. If that belongs to another user or is open to
    others, the root is ``clonos`` in XDG_RUNTIME_DIR, or a new folder that later processes find.
    """
    usual = Path(tempfile.gettempdir()) / f"clonos-{os.getuid()}"
    try:
        _make_root(usual)
        _check_private(usual)
    except FolderRefused as refused:
        other = _other_root(usual)
        logger.warning("the folder %s is unsafe: %s. Using %s instead", usual, refused.reason, other)
        return other
    return usual


def sweep(root: Path) -> list[str]:
    """Removes the folders of dead processes and returns their names. Removes stories that are older than 7 days.

    Raises: FolderRefused when the root is unsafe.
    """
    if not os.path.lexists(root):
        return []
    swept = []
    with _opened_private(root) as root_fd:
        for lock_name in sorted(os.listdir(root_fd)):
            if STORY_NAME.fullmatch(lock_name):
                _remove_old_story(root_fd, lock_name)
                continue
            name = lock_name.removesuffix(LOCK_SUFFIX)
            if name == lock_name or not FOLDER_NAME.fullmatch(name):
                continue
            lock = _take_lock(root_fd, lock_name)
            if lock < 0:
                continue
            shutil.rmtree(name, ignore_errors=True, dir_fd=root_fd)
            _unlink(root_fd, lock_name)  # last: a folder without a lock file would never be swept
            os.close(lock)
            swept.append(name)
    return swept


def _other_root(usual: Path) -> Path:
    """Returns the first safe alternative to the usual root; creates one if there is none."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if runtime.is_absolute() and _is_private(runtime):
        try:
            _make_root(runtime / "clonos")
            _check_private(runtime / "clonos")
        except FolderRefused:
            pass
        else:
            return runtime / "clonos"
    made_before = filter(_is_private, sorted(usual.parent.glob(f"{usual.name}-*")))
    return next(made_before, None) or Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=usual.parent))


def _make_root(root: Path) -> None:
    try:
        root.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return
    except OSError as error:
        raise FolderRefused(str(root), f"it cannot be created: {error.strerror}") from None


def _is_private(folder: Path) -> bool:
    try:
        _check_private(folder)
    except FolderRefused:
        return False
    return True


def _check_private(folder: Path) -> None:
    os.close(_open_private(folder))


@contextmanager
def _opened_private(folder: Path) -> Iterator[int]:
    descriptor = _open_private(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_private(folder: Path) -> int:
    """Returns a descriptor of a real folder that only this user may enter. Raises: FolderRefused when it is none."""
    try:
        _refuse_unsafe(folder, os.lstat(folder))
        descriptor = os.open(folder, _OPEN_FOLDER)
    except OSError as error:
        raise FolderRefused(str(folder), f"it cannot be opened: {error.strerror}") from None
    try:
        _refuse_unsafe(folder, os.fstat(descriptor))  # another folder may have replaced it meanwhile
    except FolderRefused:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_unsafe(folder: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        raise FolderRefused(str(folder), "it is a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        raise FolderRefused(str(folder), "it is not a folder")
    if found.st_uid != os.getuid():
        raise FolderRefused(str(folder), f"it belongs to user {found.st_uid}, expected {os.getuid()}")
    if mode & 0o077:
        raise FolderRefused(str(folder), f"its mode is {mode:o}, others may enter; expected 700")


def _make_lock(root_fd: int, name: str, folder: Path) -> int:
    """Returns a descriptor that holds a new lock. The lock is held before the file has its name, so no sweep can take
    it."""
    unnamed = f"{name}.{os.getpid()}"
    descriptor = os.open(unnamed, _OPEN_LOCK | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=root_fd)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.link(unnamed, name, src_dir_fd=root_fd, dst_dir_fd=root_fd)
    except FileExistsError:
        os.close(descriptor)
        raise FolderRefused(str(folder), "another process has its lock") from None
    finally:
        os.unlink(unnamed, dir_fd=root_fd)
    return descriptor


def _take_lock(root_fd: int, name: str) -> int:
    """Returns a descriptor that holds an existing lock; -1 if its process lives, or the file is missing or no lock
    file."""
    try:
        descriptor = os.open(name, _OPEN_LOCK, dir_fd=root_fd)
    except OSError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    return descriptor


def _remove_old_story(root_fd: int, name: str) -> None:
    try:
        age_s = time.time() - os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_mtime
    except FileNotFoundError:  # another process sweeps too
        return
    if age_s > STORY_RETENTION_S:
        _unlink(root_fd, name)


def _unlink(root_fd: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=root_fd)
    except FileNotFoundError:
        return
