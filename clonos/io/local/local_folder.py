"""The folder of one process: it holds all that the process leaves on the local disk, and a lock while it lives.

A later process sweeps the folders whose lock nobody holds: their processes are dead, however they died. The root lies
where other users can write, so it is trusted only as a real folder of this user that no one else may enter; all work
below it is relative to its descriptor, follows no link and touches only names that this module makes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from clonos.core.model.errors import EnvironmentFault

logger = logging.getLogger("clonos.io")

LOCK_SUFFIX: Final = ".lock"
FOLDER_NAME: Final = re.compile(r"[0-9a-f]{16}|driver-[0-9a-f]{12}", re.ASCII)
"""Of a slot's folder and of a driver's."""

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_LOCK: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderRefused(EnvironmentFault):
    """The root of the local folders is not safe to use."""

    folder: str
    reason: str

    def __str__(self) -> str:
        return f"the local folder {self.folder} cannot be used: {self.reason}. Remove it or name another one."


class LocalFolder:
    """``path`` is this process's own, with mode 0700, below ``root``. ``close`` removes it."""

    def __init__(self, root: Path, name: str) -> None:
        """``name`` matches ``FOLDER_NAME``. Raises: FolderRefused."""
        assert FOLDER_NAME.fullmatch(name), name
        self.root = root
        self.path = root / name
        _make_root(root)
        with ExitStack() as on_failure:
            self._root = _open_private(root)
            on_failure.callback(os.close, self._root)
            self._lock = _make_lock(self._root, f"{name}{LOCK_SUFFIX}", self.path)
            on_failure.callback(os.close, self._lock)
            # The lock is held before the folder exists, so no sweep can take it for a dead one's.
            os.mkdir(name, 0o700, dir_fd=self._root)
            on_failure.pop_all()

    def close(self) -> None:
        """Removes the folder and gives the lock back."""
        if self._lock >= 0:
            shutil.rmtree(self.path.name, ignore_errors=True, dir_fd=self._root)
            _unlink(self._root, f"{self.path.name}{LOCK_SUFFIX}")
            os.close(self._lock)
            os.close(self._root)
            self._lock = -1


def default_root() -> Path:
    """A private folder of this user, made if need be: short, since sockets lie within.

    It is ``clonos-<uid>`` in the folder for temporary files. Where that is another user's or open to others, it is
    ``clonos`` in XDG_RUNTIME_DIR, or a new folder, which later processes find.
    """
    usual = Path(tempfile.gettempdir()) / f"clonos-{os.getuid()}"
    try:
        _make_root(usual)
        _check_private(usual)
    except FolderRefused as refused:
        other = _other_root(usual)
        logger.warning("%s: %s. %s is used instead", usual, refused.reason, other)
        return other
    return usual


def sweep(root: Path) -> list[str]:
    """Removes the folders of dead processes; answers their names. Raises: FolderRefused."""
    if not os.path.lexists(root):
        return []
    swept = []
    with _opened_private(root) as root_fd:
        for lock_name in sorted(os.listdir(root_fd)):
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
    """The first safe one of the places that stand in for the usual one."""
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
        raise FolderRefused(str(root), f"it cannot be made: {error.strerror}") from None


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
    """A descriptor of a real folder of this user's that nobody else may enter. Raises: FolderRefused."""
    try:
        _refuse_unsafe(folder, os.lstat(folder))
        descriptor = os.open(folder, _OPEN_FOLDER)
    except OSError as error:
        raise FolderRefused(str(folder), f"it cannot be opened: {error.strerror}") from None
    try:
        _refuse_unsafe(folder, os.fstat(descriptor))  # it may be another one by now
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
    """A descriptor that holds a new lock. It is held before it has its name, so that no sweep comes between."""
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
    """A descriptor that holds an existing lock, or -1 if its process lives, the file has gone or is no lock of ours."""
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


def _unlink(root_fd: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=root_fd)
    except FileNotFoundError:
        return
