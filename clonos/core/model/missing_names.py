"""Errors for attributes that objects of the library do not have: they say what to use instead."""

from __future__ import annotations

import difflib
import dis
import sys
from collections.abc import Collection, Iterable, Mapping
from types import FrameType, MappingProxyType

from clonos.core.model.errors import JobError


class MethodMissing(JobError, AttributeError):
    """An object of the library has no attribute of this name. ``hint`` says what to use instead."""

    owner: str
    attribute: str
    hint: str

    def __str__(self) -> str:
        return f"{self.owner} has no {self.attribute}. {self.hint}".rstrip()


class NameMissing(JobError, ImportError):
    """A public module has no name like this. ``hint`` says what to use instead."""

    module: str
    wanted: str
    hint: str

    def __str__(self) -> str:
        return f"{self.module} has no {self.wanted}. {self.hint}".rstrip()


def name_missing(module: str, name: str, hint: str, frame: FrameType) -> AttributeError | NameMissing:
    """Returns the error for a name that a public module does not have, for ``getattr`` or for a ``from`` import.

    An AttributeError would lose its text in a ``from`` import, which makes an ImportError of every AttributeError.
    ``frame`` asks for the name.
    """
    if frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]:
        return NameMissing(module, name, hint)
    kind = "the module" if "." in module else "the package"
    return MethodMissing(f"{kind} {module}", name, hint) if hint else AttributeError(f"{module} has no {name}")


def explains_names(module: str, hints: Mapping[str, str] = MappingProxyType({})) -> None:
    """Lets a module answer a name that it does not have by the nearest of its public names (``__all__``); to be called
    when the module has them. ``hints`` say what to use for names of other libraries."""
    members = vars(sys.modules[module])
    public: Collection[str] = members["__all__"]

    def missing(name: str) -> None:
        if name.startswith("_"):  # asked for by copy, inspect, doctest and others, who go on without it
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        shown = f"clonos.{module.rpartition('.')[2]}"
        hint = hints.get(name) or nearest(name, public) or f"It has: {', '.join(sorted(public, key=str.lower))}."
        raise name_missing(shown, name, hint, sys._getframe(1))

    members["__getattr__"] = missing


def attribute_missing(
    owner: type, attribute: str, hints: Mapping[str, str], hidden: Collection[str] = ()
) -> AttributeError:
    """Returns the error for an attribute that objects of ``owner`` do not have; ``hints`` say what to use instead.

    ``hidden``: attributes that are not named.
    """
    if attribute.startswith("_"):  # asked for by copy, pickle, notebooks and others, who go on without it
        return AttributeError(f"{owner.__name__!r} object has no attribute {attribute!r}")
    public = [name for name in dir(owner) if not name.startswith("_") and name not in hidden]
    hint = hints.get(attribute) or nearest(attribute, public) or f"It has: {', '.join(public)}."
    article = "an" if owner.__name__[0] in "AEIOU" else "a"
    return MethodMissing(f"{article} {owner.__name__}", attribute, hint)


def nearest(attribute: str, names: Iterable[str]) -> str:
    """Returns a question for the most similar name, "" if none is similar."""
    found = difflib.get_close_matches(attribute, list(names), n=1)
    return f"Did you mean {found[0]}?" if found else ""
