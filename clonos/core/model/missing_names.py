"""Errors for attributes that objects of the library do not have: they say what to use instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

from clonos.core.model.errors import JobError


class MethodMissing(JobError, AttributeError):
    """An object of the library has no attribute of this name. ``hint`` says what to use instead."""

    owner: str
    attribute: str
    hint: str

    def __str__(self) -> str:
        return f"{self.owner} has no {self.attribute}. {self.hint}".rstrip()


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
