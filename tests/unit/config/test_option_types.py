"""The types of a job's keywords are those of the options: the same names, and values that the options accept."""

from __future__ import annotations

import pathlib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Any

import pytest

from clonos.config import OptionIllTyped, keys, resolve_keywords
from clonos.job import job_options
from clonos.job.job_options import JobOptions, StartOptions

TYPES = typing.get_type_hints(JobOptions, vars(job_options))

SAMPLES: dict[Any, tuple[Any, ...]] = {
    int: (3,),
    bool: (True, False),
    float: (2.0,),
    timedelta: (timedelta(seconds=2),),
    NoneType: (None,),
    Sequence: (["a.py", pathlib.Path("b.py")], ("c.py",)),
    Mapping: ({"count": (1, 8)},),
    Callable: (print, lambda sample: {"count": 3}),
}
"""Values of each type that an option may have; those of str depend on the others."""


def _members(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if isinstance(kind, UnionType) or typing.get_origin(kind) is typing.Union else (kind,)


def _samples(kind: Any) -> Iterator[Any]:
    members = _members(kind)
    for member in members:
        origin = typing.get_origin(member)
        if origin is typing.Literal:
            yield from typing.get_args(member)
        elif member is str:
            yield "5s" if timedelta in members else "5MiB" if float in members else "text"
        elif isinstance(member, type) and issubclass(member, Enum):
            yield from member
        elif origin in SAMPLES or member in SAMPLES:
            yield from SAMPLES[origin or member]
        else:
            yield pathlib.Path("folder")


def test_each_option_is_a_typed_keyword_and_each_keyword_an_option() -> None:
    assert sorted(TYPES) == list(keys())
    assert JobOptions.__annotations__.keys() - StartOptions.__annotations__.keys() == {"master", "slots"}


@pytest.mark.parametrize("key", keys())
def test_each_value_of_a_keywords_type_is_accepted(key: str) -> None:
    for value in _samples(TYPES[key]):
        resolve_keywords({"lease": "1h", key: value})


WRONG: tuple[Any, ...] = (3, True, 2.5, None, "text", "5s", "5MiB", ["a.py"], timedelta(seconds=2), b"bytes")


@pytest.mark.parametrize("key", keys())
def test_a_value_that_an_option_accepts_is_of_its_keywords_type(key: str) -> None:
    """A str may also hold a number or a switch, as the environment and the command line give them."""
    allowed = tuple(typing.get_origin(member) or member for member in _members(TYPES[key]))
    classes = tuple(str if member is typing.Literal else member for member in allowed)
    for value in WRONG:
        try:
            resolve_keywords({"lease": "1h", key: value})
        except OptionIllTyped:
            continue
        assert isinstance(value, (str, *classes)) or (float in classes and isinstance(value, int))
