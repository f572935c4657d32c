"""Patches of the functions that can be intercepted: of Python at once, of libraries when they are imported.

``install`` patches this process once and for all. A patched function behaves as before, except in a context with an
answer for its name (``answers``). Names that modules have imported from others, as in ``from time import time``, are
replaced too. ``datetime`` is a type of C, so its class methods are replaced in the type itself: the class stays the
same for ``isinstance``, pickles and annotations.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import random
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

from clonos.io.interception.answers import OWN_PACKAGES, intercepted, watch_collections


class Patch(NamedTuple):
    """Function to patch: ``path`` in a module, and the name under which it is answered.

    ``exempts``: whether packages that measure or log get the original.
    """

    module: str
    path: str
    name: str
    exempts: bool = True


CLOCKS: Final = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"),
    *("localtime", "gmtime", "ctime", "asctime", "strftime"),
)
"""Functions of ``time``."""

CPU_CLOCKS: Final = ("process_time", "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime")

DRAWS: Final = tuple(
    name
    for name in dir(random.Random)
    if not name.startswith("_") and callable(getattr(random.Random, name)) and hasattr(random, name)
)
"""Functions of ``random``, which share one generator."""

NUMPY_DRAWS: Final = (
    *("rand", "randn", "randint", "random", "random_sample", "random_integers", "ranf", "sample", "choice", "bytes"),
    *("shuffle", "permutation", "seed", "normal", "uniform", "poisson", "exponential", "binomial", "beta", "gamma"),
    *("lognormal", "geometric", "multinomial", "standard_normal", "standard_exponential", "triangular", "set_state"),
)
"""Functions of ``numpy.random``, which share a generator of C."""


def _functions(module: str, names: Sequence[str], *, exempts: bool = True) -> Iterator[Patch]:
    for name in names:
        yield Patch(module, name, f"{module}.{name}", exempts)


PATCHES: Final = (
    *_functions("time", (*CLOCKS, *CPU_CLOCKS)),
    *_functions("random", DRAWS),
    Patch("random", "Random.seed", "random.Random"),
    Patch("random", "_urandom", "os.urandom"),
    *_functions("os", ("urandom", "getrandom", "fork")),
    *_functions("uuid", ("uuid1", "getnode")),
    *_functions("urllib.request", ("AbstractHTTPHandler.do_open",), exempts=False),
    *_functions("threading", ("Thread.start",), exempts=False),
    *_functions("socket", ("socket.connect", "socket.connect_ex", "socket.sendto"), exempts=False),
    *_functions("socket", ("getaddrinfo", "gethostbyname"), exempts=False),
    *_functions("subprocess", ("Popen.__init__",), exempts=False),
    *_functions("urllib3.connectionpool", ("HTTPConnectionPool.urlopen",), exempts=False),
    *_functions("httpx", ("HTTPTransport.handle_request", "AsyncHTTPTransport.handle_async_request"), exempts=False),
    *_functions("httpx2", ("HTTPTransport.handle_request", "AsyncHTTPTransport.handle_async_request"), exempts=False),
    *_functions("aiohttp", ("ClientSession._request", "ClientSession._ws_connect"), exempts=False),
    *_functions("numpy.random", NUMPY_DRAWS),
    *_functions("psycopg", ("connect", "Connection.connect"), exempts=False),
    *_functions("psycopg2", ("connect",), exempts=False),
    *_functions("sqlite3", ("connect",), exempts=False),
    *_functions("grpc", ("insecure_channel", "secure_channel"), exempts=False),
    *_functions("pycurl", ("Curl",), exempts=False),
)
"""All patches. Libraries that a process has not imported are patched when it does."""

CLASS_METHODS: Final = ("now", "utcnow")
"""Class methods of ``datetime`` that read the clock. Its ``today``, and that of ``date``, call ``time.time``."""

_is_installed = False
_replaced: dict[int, tuple[Any, Any]] = {}  # by id of an original: it and what replaces it


def install() -> None:
    """Patches this process, unless that was done."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    watch_collections()
    waiting: dict[str, list[Patch]] = {}
    for patch in PATCHES:
        if patch.module in sys.modules or patch.module in sys.stdlib_module_names or patch.module == "urllib.request":
            _apply(importlib.import_module(patch.module), patch)
        else:
            waiting.setdefault(patch.module, []).append(patch)
    for name in CLASS_METHODS:
        _replace_class_method(datetime.datetime, name, f"datetime.datetime.{name}")
    sys.meta_path.insert(0, _Patching(waiting))
    for name, module in list(sys.modules.items()):
        package = name.partition(".")[0]
        if package not in sys.stdlib_module_names and package not in OWN_PACKAGES:
            replace_in(vars(module))


def replace_in(names: dict[str, Any]) -> None:
    """Replaces the originals among the values of a namespace, such as the globals of a function."""
    for name, value in list(names.items()):
        found = _replaced.get(id(value))
        if found is not None and found[0] is value:
            names[name] = found[1]


def original_of(function: Any) -> Any:
    """Returns the function that a patch has replaced by this one, or the function itself."""
    return next((original for original, replacement in _replaced.values() if replacement is function), function)


def _apply(module: ModuleType, patch: Patch) -> None:
    *owners, attribute = patch.path.split(".")
    owner: Any = module
    for each in owners:
        owner = getattr(owner, each)
    raw = vars(owner).get(attribute, getattr(owner, attribute, None))
    if raw is None:  # another version, or another operating system
        return
    original = raw.__func__ if isinstance(raw, classmethod) else raw
    replacement: Any = intercepted(patch.name, original, exempts=patch.exempts)
    replacement.__module__, replacement.__qualname__ = patch.module, patch.path  # so that it is pickled by name
    if not owners:
        _replaced.setdefault(id(raw), (raw, replacement))
    setattr(owner, attribute, classmethod(replacement) if isinstance(raw, classmethod) else replacement)


def _replace_class_method(cls: type, name: str, answered: str) -> None:
    raw = cls.__dict__[name]

    def original(owner: type, *args: Any, **named: Any) -> Any:
        return raw.__get__(None, owner)(*args, **named)

    original.__name__ = name
    (members,) = (each for each in gc.get_referents(cls.__dict__) if isinstance(each, dict))
    members[name] = classmethod(intercepted(answered, original))
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


class _Patching(importlib.abc.MetaPathFinder):
    """Finder that patches libraries as they are imported."""

    def __init__(self, waiting: dict[str, list[Patch]]) -> None:
        self._waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Finds a library that waits for its patches, by the finders after this one."""
        patches = self._waiting.pop(fullname, None)
        if patches is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, patches)
        return spec


class _PatchingLoader(importlib.abc.Loader):
    """Loader that applies patches to a module when it is loaded."""

    def __init__(self, loader: Any, patches: list[Patch]) -> None:
        self._loader, self._patches = loader, patches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Creates the module as its own loader does."""
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Loads the module, and patches it."""
        self._loader.exec_module(module)
        for patch in self._patches:
            _apply(module, patch)


def names_of_patches() -> frozenset[str]:
    """Returns the names for which there may be answers."""
    return frozenset((*(each.name for each in PATCHES), *(f"datetime.datetime.{name}" for name in CLASS_METHODS)))
