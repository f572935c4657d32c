"""Keys: their bytes, their groups, their normal form in memory, and the partitioning of batches by them."""

from __future__ import annotations

import datetime
import enum
import itertools
import pickle
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos.core.values import ValueBeyondLimit, register
from clonos.core.values.column_keys import values_of
from clonos.core.values.key_encoding import KeyUnsupported, decode_key, encode_key
from clonos.core.values.keys import (
    Router,
    groups_of_task,
    key_group,
    key_of,
    state_key,
    state_keys,
    task_of_group,
)
from clonos.core.values.value_limits import KEY_BYTES_MAX, KEY_DEPTH_MAX
from tests.unit.values.samples import STEADY, ZONES, Color, Level, members, same, texts, zones

leaves = st.one_of(
    *(texts, st.binary(max_size=3), st.integers(-2, 2), st.integers(), st.booleans(), st.none()),
    *(st.uuids(), st.dates(), st.sampled_from(["x" * 253, b"x" * 254, "x" * 300])),
    *(st.datetimes().map(lambda naive: naive.replace(tzinfo=datetime.UTC, fold=0)), members),
)
keys = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)


@register(name="test_keys.Named")
class Named(enum.StrEnum):
    A = "A"


MIDNIGHT = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
COLLIDING = [
    Level.LOW,
    (Level.LOW,),
    Color.RED,
    MIDNIGHT,
    MIDNIGHT.date(),
    Named.A,
    "A",
    (Named.A,),
    1,
    True,
    0,
    False,
    "1",
    b"1",
    (1,),
    (True,),
    ((1,),),
    ((True,),),
    (),
    ((),),
    None,
    (None,),
    ("1",),
    (1, 0),
]


@STEADY
@given(keys)
def test_a_key_is_decoded_exactly(key: Any) -> None:
    assert same(decode_key(encode_key(key)), key)
    assert same(key_of(state_key(key)), key)


@STEADY
@given(st.lists(st.one_of(keys, st.sampled_from(COLLIDING)), max_size=6))
def test_state_keys_are_equal_exactly_when_encoded_keys_are(many: list[Any]) -> None:
    for one, other in itertools.product(many, repeat=2):
        assert (state_key(one) == state_key(other)) == (encode_key(one) == encode_key(other))


@STEADY
@given(st.lists(st.one_of(keys, st.sampled_from(COLLIDING)), max_size=6))
def test_state_keys_of_a_batch_are_those_of_its_keys(many: list[Any]) -> None:
    assert state_keys(many) == [state_key(key) for key in many]
    assert [encode_key(key) for key in state_keys(many)] == [encode_key(key) for key in many]


def test_keys_that_only_python_calls_equal_are_different_keys() -> None:
    assert len({encode_key(key) for key in COLLIDING}) == len(COLLIDING)
    assert len({state_key(key) for key in COLLIDING}) == len(COLLIDING)


@pytest.mark.parametrize("batch", [["a", "b"], [1, 2], [("a", 1), ("b", (2, None))], [b"x", None], [], [()]], ids=repr)
def test_simple_keys_are_used_without_a_copy(batch: list[Any]) -> None:
    assert state_keys(batch) is batch


instants = st.datetimes(
    datetime.datetime(2, 1, 1),
    datetime.datetime(9998, 12, 31),
    timezones=zones.filter(lambda zone: zone is not None),
)


@STEADY
@given(instants, zones.filter(lambda zone: zone is not None), st.sampled_from([0, 1]))
def test_an_instant_is_one_key_in_every_zone(instant: datetime.datetime, zone: Any, fold: int) -> None:
    instant = instant.replace(fold=fold)
    in_utc = instant.astimezone(datetime.UTC).replace(fold=0)
    elsewhere = in_utc.astimezone(zone)
    for key in (instant, elsewhere, (1, elsewhere)):
        utc = (1, in_utc) if isinstance(key, tuple) else in_utc
        assert encode_key(key) == encode_key(utc)
        assert state_key(key) == state_key(utc)
        assert same(key_of(state_key(key)), utc)
        assert same(decode_key(encode_key(key)), utc)
        assert Router(4, 128).target(key) == Router(4, 128).target(utc)
    assert state_keys([instant, elsewhere]) == [in_utc, in_utc]


@pytest.mark.skipif(not ZONES, reason="the machine has no time zones")
def test_two_instants_of_a_repeated_hour_are_two_keys_although_python_calls_them_equal() -> None:
    first = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    second = first.replace(fold=1)
    assert first == second
    assert encode_key(first) != encode_key(second)
    assert len({*state_keys([first, second])}) == 2


@pytest.mark.parametrize("zone", ["UTC", "+02:00", *([ZONES[0].key] if ZONES else [])])
def test_the_instants_of_a_column_are_the_keys_of_rows(zone: str) -> None:
    first = datetime.datetime(2024, 10, 27, 0, 30, tzinfo=datetime.UTC)
    second = first + datetime.timedelta(hours=1)  # the same wall time in Berlin
    found = values_of([pyarrow.array([first, second, first], pyarrow.timestamp("us", zone))])
    assert same(state_keys(found), [first, second, first])


@pytest.mark.parametrize(
    ("scalar", "key"),
    [
        (numpy.int64(7), 7),
        (numpy.uint8(200), 200),
        (numpy.str_("a"), "a"),
        (numpy.bytes_(b"a"), b"a"),
        (numpy.bool_(True), True),
        ((numpy.int32(-1), "x"), (-1, "x")),
    ],
    ids=repr,
)
def test_a_numpy_scalar_is_the_key_of_the_python_one(scalar: Any, key: Any) -> None:
    assert encode_key(scalar) == encode_key(key)
    assert same(state_key(scalar), state_key(key))
    assert same(key_of(state_key(scalar)), key)


class UnregisteredColor(enum.Enum):
    RED = 1


class Text(str):
    __slots__ = ()


class NamedPair(NamedTuple):
    x: int


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        (1.0, "round"),
        (float("nan"), "round"),
        (("a", 1.0), "round"),
        ((True, (1.0,)), "round"),
        ([1], "tuple"),
        ({"a": 1}, "sorted"),
        (frozenset({1}), "sorted"),
        (Text("x"), "str(...)"),
        (NamedPair(1), "tuple(...)"),
        (datetime.datetime(2024, 1, 1), ".replace(tzinfo=UTC)"),
        ((1, datetime.datetime(2024, 1, 1)), ".replace(tzinfo=UTC)"),
        (datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))), "isoformat"),
        (datetime.time(1), "isoformat"),
        (UnregisteredColor.RED, "@register"),
        (numpy.float64(1.0), "round"),
        (numpy.datetime64("2024-01-01"), "isoformat"),
        (object(), "id"),
    ],
    ids=lambda argument: argument if isinstance(argument, str) else type(argument).__name__ + str(argument)[:12],
)
def test_an_invalid_key_is_refused_everywhere_with_a_remedy(key: Any, advice: str) -> None:
    router = Router(2, 128)
    router.split([1, "x"], [1, "x"])
    attempts: list[Callable[[], object]] = [
        lambda: encode_key(key),
        lambda: state_key(key),
        lambda: state_keys(["a", key]),
        lambda: state_keys([key, key]),
        lambda: router.split([1, key], [1, 2]),
        lambda: router.split([key], [1]),
        lambda: router.target(key),
    ]
    for attempt in attempts:
        with pytest.raises(KeyUnsupported) as caught:
            attempt()
        assert advice in str(caught.value)


def test_a_cached_key_does_not_admit_an_invalid_equal() -> None:
    router = Router(4, 128)
    assert router.split([1, 1], ["a", "b"])[0][router.target(1)] == ["a", "b"]
    with pytest.raises(KeyUnsupported):
        router.split([1.0], ["c"])
    with pytest.raises(KeyUnsupported):
        router.split([(1, 1.0)], ["c"])


def test_keys_have_limits() -> None:
    with pytest.raises(ValueBeyondLimit, match="bytes"):
        encode_key("x" * KEY_BYTES_MAX)
    deepest: Any = ()
    for _ in range(KEY_DEPTH_MAX - 1):
        deepest = (deepest,)
    assert decode_key(encode_key(deepest)) == deepest
    assert state_keys([deepest]) == [deepest]
    for attempt in (encode_key, state_key):
        with pytest.raises(ValueBeyondLimit, match="tuples"):
            attempt((deepest,))


def test_key_groups_are_those_of_xxh3() -> None:
    # Fixed for ever: state is stored by key group.
    groups = [key_group(encode_key(key), 128) for key in ("a", "b", 1, True, None, ("a", 1))]
    assert groups == [93, 38, 45, 52, 86, 73]


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(1, 1), (1, 128), (2, 128), (3, 128), (128, 128), (5, 7)])
def test_tasks_have_contiguous_ranges_that_cover_all_groups(parallelism: int, max_parallelism: int) -> None:
    ranges = [list(groups_of_task(task, parallelism, max_parallelism)) for task in range(parallelism)]
    assert list(itertools.chain.from_iterable(ranges)) == list(range(max_parallelism))
    for task, groups in enumerate(ranges):
        assert {task_of_group(group, parallelism, max_parallelism) for group in groups} == {task}
    sizes = [len(groups) for groups in ranges]
    assert max(sizes) - min(sizes) <= 1


def dumb_split(many: list[Any], rows: list[Any], parallelism: int) -> list[list[Any]]:
    targets = [task_of_group(key_group(encode_key(key), 128), parallelism, 128) for key in many]
    return [[row for row, target in zip(rows, targets, strict=True) if target == task] for task in range(parallelism)]


@STEADY
@given(
    st.lists(st.lists(st.one_of(keys, st.sampled_from(COLLIDING)), max_size=8), max_size=4),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_a_router_splits_like_a_naive_implementation(
    batches: list[list[Any]], parallelism: int, cached_keys_max: int
) -> None:
    router = Router(parallelism, 128, cached_keys_max)
    for batch in batches:
        rows = list(range(len(batch)))
        times = [number * 10 for number in rows]
        by_number, themselves, times_of = router.split(batch, rows, batch, times)
        assert by_number == dumb_split(batch, rows, parallelism)
        assert list(map(repr, themselves)) == list(map(repr, dumb_split(batch, batch, parallelism)))
        assert times_of == dumb_split(batch, times, parallelism)
        assert [router.split([key], [0])[0].index([0]) for key in batch] == [router.target(key) for key in batch]


def test_a_router_caches_at_most_its_limit_of_keys() -> None:
    router = Router(2, 128, cached_keys_max=10)
    for number in range(100):
        router.target(number)
        assert router.cached_keys <= 10


def test_different_numbers_of_keys_and_rows_are_an_error() -> None:
    with pytest.raises(ValueError, match="1 keys for 2 rows"):
        Router(2, 128).split(["a"], [1, 2])


def test_keys_may_be_any_sequence() -> None:
    assert Router(1, 128).split(("a", "b"), [1, 2]) == ([[1, 2]],)


def test_a_key_error_survives_pickling_from_another_process() -> None:
    error = KeyUnsupported("float", "Round it.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301


def test_equal_uuids_are_one_key_however_they_were_created() -> None:
    safe, unknown = uuid.UUID(int=5, is_safe=uuid.SafeUUID.safe), uuid.UUID(int=5)
    assert encode_key(safe) == encode_key(unknown)
    assert state_key(safe) == state_key(unknown)
