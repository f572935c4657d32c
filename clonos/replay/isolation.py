"""The world outside of a replay: clock, randomness, network, processes and files are refused, with the user's line.

An audit hook of Python sees sockets, processes and files in every thread. The clock and randomness are functions of C
that no hook sees, and names of them may be bound anywhere; a profile function of the task's thread sees each call.
"""

from __future__ import annotations

import os
import random
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from types import FrameType
from typing import Any, Final, NamedTuple

from clonos.core.model.code_location import INSTALLED, LIBRARY
from clonos.core.model.errors import JobError
from clonos.io.interception.answers import EXEMPT, is_collecting, watch_collections
from clonos.io.interception.patches import original_of

TIME: Final = "time"
RANDOM: Final = "random"
NETWORK: Final = "network"
PROCESSES: Final = "processes"
FILES: Final = "files"
KINDS: Final = (TIME, RANDOM, NETWORK, PROCESSES, FILES)

REMEDIES: Final = {
    TIME: "take the time from clock of clonos, which the log repeats",
    RANDOM: "take random numbers from random of clonos, which the log repeats",
    NETWORK: "ask through a service of clonos (http, @service), whose answers the log has",
    PROCESSES: "start no process in a step, or make it a service of clonos (@service)",
    FILES: "write no file in a step: give the records to a sink",
}

_CLOCKS: Final = frozenset(
    ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "clock_gettime")
)
_DATES: Final = frozenset(("now", "utcnow", "today"))
_DRAWS: Final = frozenset(("random", "getrandbits", "urandom", "getrandom"))
_WATCHED: Final = _CLOCKS | _DATES | _DRAWS

_NETWORK_EVENTS: Final = frozenset(
    ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname")
)
_PROCESS_EVENTS: Final = frozenset(("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"))
_FILE_EVENTS: Final = frozenset(
    ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree")
)
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC

_OF_PYTHON: Final = frozenset(
    (
        *("_pytest", "bdb", "cmd", "code", "faulthandler", "importlib", "linecache", "logging", "pdb", "pydevd"),
        *("pydevd_bundle", "debugpy", "readline", "threading", "traceback", "tracemalloc", "warnings"),
    )
)
"""Packages that ask outside for themselves: imports, debuggers and logs."""

INTERCEPTION: Final = "clonos.io.interception"
"""Package whose patched functions call the original ones, in steps without ``intercept=True``."""

_NEW_RANDOM: Final = random.Random.__init__.__code__
_TIMED_IDENTITY: Final = original_of(uuid.uuid1).__code__  # noqa: TID251  it is refused here


class AccessRefused(JobError):
    """User code has asked the world outside in a replay. ``what``: the call. ``place``: the line of user code."""

    kind: str
    what: str
    place: str

    def __str__(self) -> str:
        return (
            f"{self.place} asks outside of the record: {self.what}. In another run it gets another answer, so the task"
            f" may not repeat itself: {REMEDIES[self.kind]}. To replay nevertheless: --allow {self.kind}"
        )


class FileRead(NamedTuple):
    """File that user code has read, which is no part of the record."""

    file: str
    place: str


class Isolation:
    """Isolation of one replay. ``refused``: the accesses that it was refused; ``read``: the files that it has read."""

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        """``allowed``: some of ``KINDS``. Raises: JobError: another one."""
        strange = sorted(allowed - set(KINDS))
        if strange:
            raise JobError(f"--allow {strange[0]}: give {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
        self.refused: list[AccessRefused] = []
        self.read: dict[FileRead, None] = {}
        self._allowed = allowed

    def profile(self, frame: FrameType, event: str, function: Any) -> None:
        """Profile function of the task's thread. Raises: AccessRefused."""
        if event == "c_call":
            name = function.__name__
            if name in _WATCHED and (found := _asks(name, function)) is not None:
                self._refuse(frame, *found)
        elif event == "call":
            if frame.f_code is _NEW_RANDOM and frame.f_locals.get("x") is None and frame.f_back is not None:
                self._refuse(frame.f_back, RANDOM, "random.Random() without a seed")
            elif frame.f_code is _TIMED_IDENTITY and frame.f_back is not None:
                self._refuse(frame.f_back, TIME, "uuid.uuid1()")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Looks at an event of Python's audit hook. Raises: AccessRefused."""
        if event == "open":
            self._opened(*arguments)
        elif event in _NETWORK_EVENTS:
            self._refuse(sys._getframe(2), NETWORK, f"{event}{_address(event, arguments)}")
        elif event in _PROCESS_EVENTS:
            self._refuse(sys._getframe(2), PROCESSES, f"{event}({_shortened(arguments[0]) if arguments else ''})")
        elif event in _FILE_EVENTS:
            self._refuse(sys._getframe(2), FILES, f"{event}({_shortened(arguments[0])})")
        elif event == "sqlite3.connect" and arguments[0] != ":memory:":
            self._refuse(sys._getframe(2), FILES, f"sqlite3.connect({_shortened(arguments[0])})")

    def _opened(self, file: Any, mode: str | None, flags: int) -> None:
        if isinstance(file, int) or str(file) == os.devnull:
            return
        is_writing = bool(flags & _WRITES) or bool(mode and set(mode) & set("wax+"))
        if is_writing:
            self._refuse(sys._getframe(3), FILES, f"open({_shortened(file)}, {mode!r})")
        elif (place := _reading_place(sys._getframe(3))) is not None:
            self.read[FileRead(os.fspath(file) if isinstance(file, os.PathLike) else str(file), place)] = None

    def _refuse(self, frame: FrameType, kind: str, what: str) -> None:
        """Raises: AccessRefused, if user code asks, and may not."""
        if kind in self._allowed:
            return
        place = _asking_place(frame, is_any=kind not in (TIME, RANDOM))
        if place is not None and not is_collecting(frame):
            error = AccessRefused(kind, what, place)
            self.refused.append(error)
            raise error


def _asks(name: str, function: Any) -> tuple[str, str] | None:
    """Returns the kind and the text of a call of a watched name, None for another function of this name."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if name in _CLOCKS and module == "time":
        return TIME, f"time.{name}()"
    if name in _DATES and isinstance(owner, type) and issubclass(owner, date):
        return TIME, f"{owner.__name__}.{name}()"
    if name in ("urandom", "getrandom") and module == os.name:
        return RANDOM, f"os.{name}()"
    if name in ("random", "getrandbits") and owner is getattr(random, "_inst", None):
        return RANDOM, "a random number of the module random"
    return None


def _asking_place(frame: FrameType | None, is_any: bool) -> str | None:
    """Returns the line of user code that asks, None if clonos or Python itself does.

    ``is_any``: whether clonos may not ask either.
    """
    asking: FrameType | None = None
    while frame is not None:
        if _is_interception(frame):  # it calls for the code that has called it
            frame = frame.f_back
            continue
        asking = asking or frame
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if (
            package in _OF_PYTHON
            or (not is_any and package in EXEMPT)
            or frame.f_code.co_filename.startswith("<frozen importlib")
        ):
            return None
        if package in LIBRARY:
            return _place_of(asking) if is_any else None
        if not _is_installed(frame):
            return _place_of(frame)
        frame = frame.f_back
    return None


def _reading_place(frame: FrameType | None) -> str | None:
    """Returns the line of user code that opens a file, None if a library or Python itself does."""
    while frame is not None:
        file = frame.f_code.co_filename
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in LIBRARY or package in _OF_PYTHON or "site-packages" in file or file.startswith("<frozen import"):
            return None
        if not _is_installed(frame):
            return _place_of(frame)
        frame = frame.f_back
    return None


def _is_interception(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(INTERCEPTION)


def _is_installed(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(("<frozen ", *INSTALLED))


def _place_of(frame: FrameType) -> str:
    code = frame.f_code
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}"


def _address(event: str, arguments: tuple[Any, ...]) -> str:
    shown = arguments[1:] if event in ("socket.connect", "socket.bind", "socket.sendto") else arguments[:2]
    return f"({', '.join(map(_shortened, shown))})"


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."


_current: Isolation | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _current is not None:
        _current.audit(event, arguments)


_is_installed_hook = False


@contextmanager
def isolated(isolation: Isolation) -> Iterator[None]:
    """Context in which the world is cut off. One per process at a time: Python's audit hooks stay for its life."""
    global _current, _is_installed_hook
    if not _is_installed_hook:
        sys.addaudithook(_audit)
        _is_installed_hook = True
    watch_collections()
    before, profile_before = _current, sys.getprofile()
    _current = isolation
    sys.setprofile(isolation.profile)
    try:
        yield
    finally:
        sys.setprofile(profile_before)
        _current = before
