"""Classes that may be encoded, and their names."""

from __future__ import annotations

import abc
import dataclasses
import enum
import pickle
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import cloudpickle
import msgspec
import pytest

from clonos.core.values import (
    RegistrationRefused,
    ValueBeyondLimit,
    ValueMalformed,
    ValueUnsupported,
    decode_value,
    encode_value,
    register,
    registered,
    type_registry,
)

Item = TypeVar("Item")


@pytest.fixture(autouse=True)
def fresh_registry() -> Iterator[None]:
    names, types = type_registry.by_name.copy(), type_registry.by_type.copy()
    yield
    type_registry.by_name.clear()
    type_registry.by_name.update(names)
    type_registry.by_type.clear()
    type_registry.by_type.update(types)


def test_a_class_is_encoded_by_its_qualified_name() -> None:
    @register
    @dataclasses.dataclass
    class Local:
        x: int

    name = f"{__name__}.test_a_class_is_encoded_by_its_qualified_name.<locals>.Local"
    assert registered()[name] is Local
    assert name.encode() in encode_value(Local(1))


def test_a_class_is_encoded_by_its_registered_name() -> None:
    @register(name="point")
    class Point(NamedTuple):
        x: int

    assert registered()["point"] is Point
    assert decode_value(encode_value(Point(1))) == Point(1)


def test_a_redefined_class_replaces_the_earlier_one() -> None:
    def define() -> type:
        return register(dataclasses.make_dataclass("Anew", ["x"], namespace={"__module__": "notebook"}))

    earlier, later = define(), define()
    assert type(decode_value(encode_value(earlier(1)))) is later


def test_a_name_taken_by_another_class_is_refused() -> None:
    class First(NamedTuple):
        x: int

    class Second(NamedTuple):
        x: int

    register(First, name="taken")
    with pytest.raises(RegistrationRefused, match="taken"):
        register(Second, name="taken")


def test_a_class_pickled_by_value_can_be_registered_by_its_plan() -> None:
    @dataclasses.dataclass
    class Shipped:
        x: int

    register(Shipped, name="shipped")
    data = encode_value(Shipped(1))
    plan = cloudpickle.dumps({"shipped": Shipped})
    type_registry.by_name.pop("shipped")
    with pytest.raises(ValueMalformed, match="shipped"):
        decode_value(data)
    for name, cls in pickle.loads(plan).items():  # noqa: S301  # what the driver does when a slot is born
        register(cls, name=name)
    copy: Any = decode_value(data)
    assert copy.x == 1


class Slotted:
    __slots__ = ("hidden",)


@dataclasses.dataclass
class Hiding(Slotted):
    x: int


@dataclasses.dataclass
class Failure(Exception):
    x: int


@dataclasses.dataclass
class Abstract(abc.ABC):
    x: int

    @abc.abstractmethod
    def work(self) -> None: ...


class Plain:
    pass


@pytest.mark.parametrize("cls", [Plain, Hiding, Failure, Abstract, dict, int, lambda: 1], ids=lambda cls: cls.__name__)
def test_classes_whose_objects_cannot_be_copied_by_fields_are_refused(cls: Any) -> None:
    with pytest.raises(RegistrationRefused):
        register(cls)


def test_a_subclass_of_a_registered_class_is_not_encoded_as_it() -> None:
    @register
    @dataclasses.dataclass
    class Base:
        x: int

    class Derived(Base):
        pass

    with pytest.raises(ValueUnsupported, match="@register"):
        encode_value(Derived(1))


def test_a_generic_dataclass_is_decoded() -> None:
    @register
    @dataclasses.dataclass
    class Box(Generic[Item]):
        item: Item

    assert decode_value(encode_value(Box[int](1))) == Box(1)


def test_dataclasses_with_inherited_fields_and_fields_outside_init_are_decoded() -> None:
    @dataclasses.dataclass
    class Base:
        x: int

    @register
    @dataclasses.dataclass(slots=True, kw_only=True)
    class Derived(Base):
        y: int = dataclasses.field(default=3, init=False)
        z: dataclasses.InitVar[int] = 5

        def __post_init__(self, z: int) -> None:
            self.y = z

    value = Derived(x=1, z=7)
    assert decode_value(encode_value(value)) == value
    assert value.y == 7


def test_structs_with_keyword_only_fields_are_decoded() -> None:
    @register
    class Options(msgspec.Struct, kw_only=True, rename="camel"):
        first_one: int
        other: list[int] = []  # a Struct copies it

    value = Options(first_one=1, other=[2])
    assert decode_value(encode_value(value)) == value


def test_an_exception_in_a_post_init_is_reported_as_malformed() -> None:
    @register
    class Positive(msgspec.Struct):
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise RuntimeError("negative")

    value = Positive(1)
    value.number = -1
    with pytest.raises(ValueMalformed, match="negative"):
        decode_value(encode_value(value))


def test_a_member_made_outside_of_its_enum_is_refused() -> None:
    @register
    class Open(enum.Enum):
        ONE = 1

        @classmethod
        def _missing_(cls, value: object) -> Any:
            made = object.__new__(cls)
            made._name_, made._value_ = "OTHER", value
            return made

    with pytest.raises(ValueUnsupported, match="members"):
        encode_value(Open("something"))


@pytest.mark.parametrize(
    "error",
    [
        ValueUnsupported("a.B", "value[1]", "Convert it."),
        ValueBeyondLimit("bytes", 2, 1),
        ValueMalformed("value", "cut short"),
        RegistrationRefused("a.B", "it is odd"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_registry_errors_survive_pickling_from_another_process(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
