"""One value as bytes and back."""

from __future__ import annotations

import datetime
import decimal
import itertools
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import given

from clonos.core.values import (
    ValueBeyondLimit,
    ValueUnsupported,
    column_of,
    decode_rows,
    decode_value,
    encode_rows,
    encode_value,
    value_limits,
)
from clonos.core.values.numpy_scalars import keeping_types
from clonos.core.values.tree import PLAIN, lower_all
from clonos.core.values.value_limits import VALUE_ITEMS_MAX
from tests.unit.values.golden import VALUES
from tests.unit.values.samples import (
    STEADY,
    Frozen,
    Pair,
    Point,
    Remembering,
    Unregistered,
    UnregisteredPoint,
    printed_by,
    same,
    values,
)


@STEADY
@given(values)
def test_a_value_is_decoded_unchanged(value: Any) -> None:
    assert same(decode_value(encode_value(value)), value)


@pytest.mark.slow
@STEADY
@given(values)
def test_a_copy_has_the_same_bytes(value: Any) -> None:
    data = encode_value(value)
    assert encode_value(decode_value(memoryview(data))) == data


@pytest.mark.parametrize("name", VALUES)
def test_values_that_other_codecs_change_are_decoded_unchanged(name: str) -> None:
    assert same(decode_value(encode_value(VALUES[name])), VALUES[name])


def test_a_set_has_the_same_bytes_in_every_order_of_insertion() -> None:
    items = ["b", "a", 3, (2, "x"), None, b"z"]
    assert len({encode_value(set(order)) for order in itertools.permutations(items)}) == 1


def test_a_value_has_the_same_bytes_under_every_hash_seed() -> None:
    program = (
        "from clonos.core.values import encode_value;"
        "print(encode_value([set('abcdefgh'), {frozenset('xyz'), None, b'q', 7}, {'k': {'v', 1}}]).hex())"
    )
    printed = {printed_by(program, PYTHONHASHSEED=seed) for seed in ("1", "2", "3")}
    assert len(printed) == 1


def test_decimal_bytes_do_not_depend_on_the_decimal_context() -> None:
    number = decimal.Decimal("1E+50")
    usual = encode_value(number)
    with decimal.localcontext(decimal.Context(capitals=0, prec=2)):
        assert encode_value(number) == usual
        assert same(decode_value(usual), number)


def test_derived_fields_are_not_part_of_the_value() -> None:
    value = Remembering(4)
    assert value.twice == 8
    assert "twice" not in vars(decode_value(encode_value(value)))


def test_a_post_init_does_not_run_again() -> None:
    value = Point(1)
    value.label = "made anew"
    copy = decode_value(encode_value(value))
    assert isinstance(copy, Point)
    assert copy.label == "made anew"


class Text(str):
    __slots__ = ()


BareTuple = namedtuple("BareTuple", ["a"])


@pytest.mark.parametrize(
    ("value", "path", "advice"),
    [
        (Unregistered(), "value", "Convert it"),
        ([1, {"a": (Unregistered(),)}], "value[1]['a'][0]", "Convert it"),
        ({1: Point(Unregistered())}, "value[1].x", "Convert it"),
        ({(1, Text("x")): 2}, "value.key(tuple)[1]", "str(...)"),
        ({Frozen(Text("x"))}, "value.item.number", "str(...)"),
        (UnregisteredPoint(1), "value", "@register"),
        (BareTuple(1), "value", "@register"),
        (defaultdict(int), "value", "dict(...)"),
        ([OrderedDict()], "value[0]", "dict(...)"),
        (bytearray(b"x"), "value", "bytes(...)"),
        (lambda: 1, "value", "Convert it"),
        (datetime.datetime(2024, 1, 1, tzinfo=type("Odd", (datetime.tzinfo,), {})()), "value", "zoneinfo"),
        (2 + 1j, "value", "Convert it"),
    ],
    ids=[
        "object",
        "deep",
        "in a dataclass",
        "subclass in a key",
        "in a set",
        "dataclass",
        "named tuple",
        "defaultdict",
        "ordered dict",
        "bytearray",
        "function",
        "time zone",
        "complex",
    ],
)
def test_a_value_that_cannot_be_encoded_is_refused_with_its_path_and_a_remedy(
    value: Any, path: str, advice: str
) -> None:
    with pytest.raises(ValueUnsupported) as caught:
        encode_value(value)
    assert caught.value.path == path
    assert advice in caught.value.advice
    assert str(caught.value).startswith(f"{path} is a ")


SCALARS: list[tuple[Any, Any]] = [
    (numpy.float64(0.1), 0.1),
    (numpy.float32(0.5), 0.5),
    (numpy.int64(-7), -7),
    (numpy.uint64(2**64 - 1), 2**64 - 1),
    (numpy.bool_(True), True),
    (numpy.str_("zoë"), "zoë"),
    (numpy.bytes_(b"x"), b"x"),
]


@pytest.mark.parametrize(("scalar", "value"), SCALARS, ids=lambda each: repr(each))
def test_a_numpy_scalar_travels_as_the_python_one(scalar: Any, value: Any) -> None:
    for shape in (lambda each: each, lambda each: [each], lambda each: {"a": (each, 1)}, lambda each: Point(each)):
        assert encode_value(shape(scalar)) == encode_value(shape(value))
        assert same(decode_rows(encode_rows([shape(scalar)] * 3)), [shape(value)] * 3)
        assert same(decode_rows(encode_rows([shape(value), shape(scalar)])), [shape(value)] * 2)


def test_other_values_of_numpy_are_refused() -> None:
    for value in (numpy.zeros(2), numpy.zeros(()), numpy.complex64(1), numpy.datetime64(1, "ns"), numpy.longdouble(1)):
        with pytest.raises(ValueUnsupported, match="item"):
            encode_value([value])


def test_a_numpy_scalar_is_refused_in_state() -> None:
    with keeping_types(), pytest.raises(ValueUnsupported, match="item"):
        column_of([{"sum": numpy.float64(1)}])


def test_attributes_that_are_not_fields_are_refused_rather_than_lost() -> None:
    value = Point(1)
    value.color = "red"  # type: ignore[attr-defined]
    with pytest.raises(ValueUnsupported, match="color"):
        encode_value([value])


def test_a_field_without_a_value_is_refused() -> None:
    value = Point(1)
    del value.x
    with pytest.raises(ValueUnsupported, match="no value"):
        encode_value(value)


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "list": lambda value: [value],
    "tuple": lambda value: (value,),
    "value of a dict": lambda value: {"key": value},
    "key of a dict": lambda value: {value: 1},
    "set": lambda value: {value},
    "frozenset": lambda value: frozenset((value,)),
    "record": lambda value: Pair(value, 1),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_value_at_the_depth_limit_is_encoded_and_a_deeper_one_refused(container: str) -> None:
    """Within as many containers as may be, the outermost of this kind; all others can be in any of them."""
    value: Any = ()
    for _ in range(value_limits.VALUE_DEPTH_MAX - 2):
        value = frozenset((value,))
    deepest = CONTAINERS[container](value)
    again = decode_value(encode_value(deepest))
    assert same(again, deepest)
    with pytest.raises(ValueBeyondLimit, match="depth"):
        encode_value(CONTAINERS[container](frozenset((value,))))


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = [1]
    value.append(value)
    with pytest.raises(ValueBeyondLimit, match="itself"):
        encode_value(value)


class OfLength(list[object]):
    """A list that reports another length: a real one at the limit takes 128 MB."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def __len__(self) -> int:
        return self.length


def test_too_many_items_are_refused() -> None:
    assert list(lower_all(OfLength(VALUE_ITEMS_MAX), PLAIN, 1)) == []
    with pytest.raises(ValueBeyondLimit, match="items"):
        lower_all(OfLength(VALUE_ITEMS_MAX + 1), PLAIN, 1)


def test_too_many_bytes_are_refused() -> None:
    assert len(encode_value("0123456789", bytes_max=11)) == 11
    with pytest.raises(ValueBeyondLimit, match="bytes"):
        encode_value("0123456789", bytes_max=10)


def test_importing_the_codec_imports_no_large_library() -> None:
    program = (
        "import sys, clonos.core.values, clonos.core.values.keys;"
        "print([name for name in ('pyarrow', 'numpy', 'pandas', 'zoneinfo', 'pickle') if name in sys.modules])"
    )
    assert printed_by(program) == "[]"


@pytest.mark.parametrize("value", [numpy.bytes_(b"a\0"), numpy.str_("a\0")], ids=["bytes", "str"])
def test_a_text_of_numpy_keeps_the_zeros_at_its_end(value: Any) -> None:
    decoded: Any = decode_value(encode_value(value))
    assert decoded == ("a\0" if isinstance(value, str) else b"a\0")
    assert type(decoded) in (bytes, str)
