"""Pickling of what is sent to a slot: the job's own modules are pickled by value.

A module is the job's own when it is neither part of Python, nor installed, nor part of this library, because a slot on
another machine does not have it. Installed modules are pickled by name, so the slots need them too.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import os
import pickle
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import cloudpickle
import msgspec

from clonos.core.model.errors import JobError
from clonos.io.process.struct_classes import reduce_struct

UNPICKLABLE: Final = (pickle.PickleError, TypeError, AttributeError, ValueError, OSError, RecursionError)
LIBRARY_PACKAGES: Final = ("clonos", "clonos_chaos", "clonos_services", "clonos_standby")
MSGSPEC_CACHE: Final = "__msgspec_cache__"
"""Attribute that msgspec sets on a class that it has converted to."""

FOLDERS_OF_INSTALLED: Final = ("site-packages", "dist-packages")


def pack(value: object, parts: Iterable[tuple[str, object]] = ()) -> bytes:
    """Returns the pickled ``value``. ``parts``: named parts of it, to name the first that cannot be pickled.

    Raises: JobError when ``value`` cannot be pickled.
    """
    with _by_value(own_modules()):
        try:
            return pickled(value)
        except UNPICKLABLE as error:
            culprit = next((name for name, part in parts if not _is_picklable(part)), "")
            raise JobError(
                f"the job cannot be sent to its slots{culprit and f': the step {culprit}'}: {error}."
                " A function is sent with everything that it refers to. Create files, locks, sockets and sessions in"
                " open() of a process class, which runs in the slot."
            ) from error


def _is_picklable(part: object) -> bool:
    try:
        pickled(part)
    except UNPICKLABLE:
        return False
    return True


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is untyped
    """Pickler that also pickles msgspec classes by value, which cloudpickle treats as ordinary ones.

    The mark of a dataclass field without a default stays the same object, since it is compared by identity.
    """

    def reducer_override(self, thing: Any) -> Any:
        """Reduces a msgspec class by value; called by pickle for each object that is no plain value."""
        if isinstance(thing, type) and _travels_by_value(thing):
            if issubclass(thing, msgspec.Struct):
                return reduce_struct(thing)
            if MSGSPEC_CACHE in vars(thing):  # msgspec makes it anew; it cannot be pickled
                delattr(thing, MSGSPEC_CACHE)
        if thing is dataclasses.MISSING:
            return "MISSING"
        return super().reducer_override(thing)


def _travels_by_value(cls: type) -> bool:
    module = cls.__module__
    return (
        module == "__main__" or "<locals>" in cls.__qualname__ or module in cloudpickle.list_registry_pickle_by_value()
    )


def pickled(thing: object) -> bytes:
    """Returns the pickled object, with functions and classes that the receiver cannot import by value."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    return buffer.getvalue()


def own_modules() -> list[ModuleType]:
    """Returns the loaded modules that are the job's own, sorted by name."""
    return [module for name, module in sorted(sys.modules.items()) if name != "__main__" and _is_own(name, module)]


def _is_own(name: str, module: object) -> bool:
    if name.partition(".")[0] in LIBRARY_PACKAGES or not isinstance(module, ModuleType):
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or getattr(module, "__name__", None) != name:
        return False
    return not _is_installed(file)


@functools.cache
def _is_installed(file: str) -> bool:
    path = os.path.realpath(file)
    if any(f"{os.sep}{folder}{os.sep}" in path for folder in FOLDERS_OF_INSTALLED):
        return True
    return any(path.startswith(folder + os.sep) for folder in _python_folders())


@functools.cache
def _python_folders() -> list[str]:
    return [os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    known = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for module in modules if module.__name__ not in known]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)
