"""Classes, strategies and a strict equality for the tests of values."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import os
import struct
import subprocess
import sys
import uuid
import zoneinfo
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from clonos.core.values import register

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=120)
"""The same examples in every run."""

ZONES = [
    zoneinfo.ZoneInfo(key) for key in ("Europe/Berlin", "America/New_York") if key in zoneinfo.available_timezones()
]
"""None on a machine without a time zone database."""


@register(name="samples.Point")
@dataclasses.dataclass
class Point:
    x: Any
    label: Any = "origin"

    def __post_init__(self) -> None:
        assert self.label != "made anew", "a copy must be made without __init__"


@register(name="samples.Frozen")
@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    number: Any


@register(name="samples.Nothing")
@dataclasses.dataclass(frozen=True)
class Nothing:
    pass


@register(name="samples.Remembering")
@dataclasses.dataclass
class Remembering:
    number: int

    @functools.cached_property
    def twice(self) -> int:
        return 2 * self.number


@register(name="samples.Pair")
class Pair(NamedTuple):
    left: Any
    right: Any


@register(name="samples.Shape")
class Shape(msgspec.Struct, frozen=True):
    name: Any
    sides: Any = 3


@register(name="samples.Color")
class Color(enum.Enum):
    RED = 1
    GREEN = "green"
    CRIMSON = RED  # an alias


@register(name="samples.Level")
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@register(name="samples.Rights")
class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Unregistered:
    pass


@dataclasses.dataclass
class UnregisteredPoint:
    x: int


zones = st.one_of(
    st.none(),
    st.just(datetime.UTC),
    st.builds(datetime.timezone, st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23))),
    st.builds(datetime.timezone, st.just(datetime.timedelta(hours=1)), st.sampled_from(["CET", "X"])),
    *([st.sampled_from(ZONES)] if ZONES else []),
)
days = st.dates()
instants = st.builds(
    lambda naive, zone, fold: naive.replace(tzinfo=zone, fold=fold),
    st.datetimes(),
    zones,
    st.sampled_from([0, 0, 0, 1]),
)
clocks = st.builds(lambda naive, zone: naive.replace(tzinfo=zone), st.times(), zones)
ids = st.builds(
    lambda number, safe: uuid.UUID(int=number, is_safe=safe), st.integers(0, 2**128 - 1), st.sampled_from(uuid.SafeUUID)
)
texts = st.text(st.characters(exclude_categories=()), max_size=5)
"""Lone surrogates included."""
integers = st.one_of(st.integers(-300, 300), st.integers(), st.sampled_from([2**63, -(2**63), -(2**63) - 1, 2**64]))
floats = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, float("nan"), -float("nan"), float("inf")]))
members = st.sampled_from([*Color, *Level, *Rights, Rights(0), Rights.READ | Rights.WRITE])
hashable_leaves = st.one_of(
    st.none(), st.booleans(), integers, floats, texts, st.binary(max_size=5), instants, days, clocks,
    st.timedeltas(), st.decimals().filter(lambda number: not number.is_snan()), ids, members, st.just(Nothing()),
)  # fmt: skip
leaves = st.one_of(hashable_leaves, st.builds(Decimal, st.sampled_from(["sNaN", "sNaN12", "-sNaN", "1E+7", "-0E-9"])))


def _hashable_containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Frozen, inner),
        st.builds(Pair, inner, inner),
        st.builds(Shape, inner, inner),
    )


hashables = st.recursive(hashable_leaves, _hashable_containers, max_leaves=6)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(hashables, inner, max_size=3),
        st.sets(hashables, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(Shape, inner, inner),
    )


values = st.recursive(st.one_of(leaves, hashables), _containers, max_leaves=10)

columns = st.recursive(
    st.sampled_from([
        st.text(max_size=4), st.integers(-5, 2**40), floats, st.booleans(), st.binary(max_size=3), st.none(),
        instants, st.datetimes(timezones=st.just(datetime.UTC)), days, st.decimals(), texts, integers, ids, members,
        st.one_of(st.none(), st.text(max_size=2), st.integers(-5, 5)), values,
    ]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda cells: st.tuples(*cells)),
        st.lists(inner, max_size=3).map(lambda cells: st.tuples(*cells).map(list)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda cells: st.fixed_dictionaries({f"k{place}": cell for place, cell in enumerate(cells)})
        ),
        st.tuples(inner, inner).map(lambda cells: st.builds(Point, *cells)),
        st.tuples(inner, inner).map(lambda cells: st.builds(Pair, *cells)),
        st.tuples(inner, inner).map(lambda cells: st.builds(Shape, *cells)),
    ),
    max_leaves=4,
)  # fmt: skip
"""Strategies for rows of one shape."""
batches = st.one_of(columns.flatmap(lambda cells: st.lists(cells, max_size=5)), st.lists(values, max_size=5))


def printed_by(program: str, **environment: str) -> str:
    """Output of a program in a separate Python process."""
    around = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    run = subprocess.run([sys.executable, "-c", program], env=around, capture_output=True, check=True, text=True)
    return run.stdout.strip()


def same(left: Any, right: Any) -> bool:
    """Equality as exact as a round trip should be: types, signs of zero, bits of NaN, order of dicts, zones, folds."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, datetime.datetime | datetime.time):
        wall = left.replace(tzinfo=None) == right.replace(tzinfo=None) and left.fold == right.fold
        return wall and repr(left.tzinfo) == repr(right.tzinfo)
    if isinstance(left, uuid.UUID):
        return left == right and left.is_safe is right.is_safe
    if isinstance(left, set | frozenset):
        return len(left) == len(right) and all(any(same(item, other) for other in right) for item in left)
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, msgspec.Struct):
        return same(msgspec.structs.astuple(left), msgspec.structs.astuple(right))
    if dataclasses.is_dataclass(left):
        names = [field.name for field in dataclasses.fields(left)]
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    equal: bool = left == right
    return equal
