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
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, ForwardRef, get_type_hints, is_typeddict

import cloudpickle
import msgspec

from clonos.core.model.errors import JobError
from clonos.io.process.struct_classes import reduce_struct

UNPICKLABLE: Final = (pickle.PickleError, TypeError, AttributeError, ValueError, OSError, RecursionError)
LIBRARY_PACKAGES: Final = ("clonos", "clonos_chaos", "clonos_services", "clonos_standby")
MSGSPEC_CACHE: Final = "__msgspec_cache__"
"""Attribute that msgspec sets on a class that it has converted to."""

NO_FILE: Final = "<dynamic-code>"
"""What cloudpickle 3.1.3 gives as the file of pickled code, in place of the file's name."""

SOURCE_BYTES_MAX: Final = 1 << 20
"""Bytes of a source file that ``source_files`` reads; a larger one is left out."""

FOLDERS_OF_INSTALLED: Final = ("site-packages", "dist-packages")


def pack(value: object, parts: Iterable[tuple[str, object]] = ()) -> bytes:
    """Returns the pickled ``value``. ``parts``: named parts of it, to name the first that cannot be pickled.

    Raises: JobError when ``value`` cannot be pickled.
    """
    return packed(value, parts)[0]


def packed(value: object, parts: Iterable[tuple[str, object]] = ()) -> tuple[bytes, tuple[str, ...]]:
    """Returns the pickled ``value``, and names of the modules of this library that unpickling it imports.

    Raises: JobError when ``value`` cannot be pickled.
    """
    with _by_value(own_modules()):
        try:
            data, modules = _dumped(value)
            return data, tuple(sorted({name for module in modules for name in _library_modules(module)}))
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

    Fields of classes by value have their types, and not the names of these. The mark of a dataclass field without a
    default stays the same object, since it is compared by identity.
    ``modules``: gets those of all that is pickled.
    """

    def __init__(self, file: io.BytesIO, modules: set[str]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._modules = modules

    def reducer_override(self, thing: Any) -> Any:
        """Reduces a msgspec class by value; called by pickle for each object that is no plain value."""
        if isinstance(thing, type | FunctionType | ModuleType):
            self._modules.add(str(thing.__name__ if isinstance(thing, ModuleType) else thing.__module__))
        if isinstance(thing, type) and _travels_by_value(thing):
            if issubclass(thing, msgspec.Struct):
                return reduce_struct(thing)
            if MSGSPEC_CACHE in vars(thing):  # msgspec makes it anew; it cannot be pickled
                delattr(thing, MSGSPEC_CACHE)
            _resolve_types(thing)
        if thing is dataclasses.MISSING:
            return "MISSING"
        if isinstance(thing, CodeType):
            return _reduce_code(thing)
        if isinstance(thing, msgspec.Meta):  # of Annotated[...], which msgspec does not pickle
            return functools.partial(msgspec.Meta, **dict(thing.__rich_repr__())), ()
        return super().reducer_override(thing)


def _reduce_code(code: CodeType) -> tuple[Any, ...]:
    """Returns how code is pickled, with the name of its file: a traceback shows the user's lines by it."""
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return make, tuple(code.co_filename if argument == NO_FILE else argument for argument in arguments)


def _resolve_types(cls: type) -> None:
    """Replaces the names of types in the fields of a class by the types: a slot lacks the module to look names up in.

    Names that cannot be looked up, such as those of a function, stay.
    """
    own = vars(cls).get("__annotations__", {})
    has_fields = dataclasses.is_dataclass(cls) or hasattr(cls, "_fields") or is_typeddict(cls)
    if has_fields and any(isinstance(each, str | ForwardRef) for each in own.values()):
        with suppress(Exception):  # an annotation is any expression
            hints = get_type_hints(cls, include_extras=True)
            cls.__annotations__ = {name: hints[name] for name in own}


def _travels_by_value(cls: type) -> bool:
    module = cls.__module__
    return (
        module == "__main__" or "<locals>" in cls.__qualname__ or module in cloudpickle.list_registry_pickle_by_value()
    )


def pickled(thing: object) -> bytes:
    """Returns the pickled object, with functions and classes that the receiver cannot import by value."""
    return _dumped(thing)[0]


def _dumped(thing: object) -> tuple[bytes, set[str]]:
    """Returns the pickled object, and the names of the modules of all that is pickled."""
    buffer = io.BytesIO()
    around = _modules_around.get()
    modules: set[str] = set() if around is None else around
    token = _modules_around.set(modules)
    try:
        _Pickler(buffer, modules).dump(thing)
    finally:
        _modules_around.reset(token)
    return buffer.getvalue(), modules


_modules_around: ContextVar[set[str] | None] = ContextVar("modules of what is being pickled", default=None)
"""Modules of the object whose pickling pickles others, as a job does with its registered classes."""


def _library_modules(name: str) -> list[str]:
    """Returns the modules of this library that importing a module needs: itself, or those of what it names."""
    if _is_of_library(name):
        return [name]
    if name not in sys.modules or name == "__main__" or name in cloudpickle.list_registry_pickle_by_value():
        return []
    named = [each.__module__ for each in vars(sys.modules[name]).values() if isinstance(each, type | FunctionType)]
    return [module for module in named if _is_of_library(module)]


def _is_of_library(module: str) -> bool:
    return module.partition(".")[0] in LIBRARY_PACKAGES


def own_modules() -> list[ModuleType]:
    """Returns the loaded modules that are the job's own, sorted by name."""
    return [module for name, module in sorted(sys.modules.items()) if name != "__main__" and _is_own(name, module)]


def source_files(packed: bytes, bytes_max: int = SOURCE_BYTES_MAX) -> tuple[tuple[str, str], ...]:
    """Returns the names and texts of the files whose code is in a pickled job, as they are now."""
    modules = [*own_modules(), sys.modules["__main__"]]
    names = [str(module.__file__) for module in modules if getattr(module, "__file__", None)]
    found = {name: _source(name, bytes_max) for name in names if os.fsencode(name) in packed}
    return tuple((name, text) for name, text in found.items() if text is not None)


def _source(file: str, bytes_max: int) -> str | None:
    try:
        path = Path(file)
        return path.read_text("utf-8") if path.stat().st_size <= bytes_max else None
    except (OSError, UnicodeDecodeError):
        return None  # it is not there, or no text


def _is_own(name: str, module: object) -> bool:
    if _is_of_library(name) or not isinstance(module, ModuleType):
        return False
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or getattr(module, "__name__", None) != name:
        return False
    return not _is_installed(file)


def _is_installed(file: str) -> bool:
    return _is_of_installed(os.path.dirname(os.path.realpath(file) if os.path.islink(file) else file))


@functools.cache
def _is_of_installed(folder: str) -> bool:
    path = os.path.realpath(folder) + os.sep
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
