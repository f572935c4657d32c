"""An error declares its fields once: they are its arguments, its attributes, and its pickled state."""

from __future__ import annotations

import pickle
from typing import ClassVar

import pytest

from clonos.core.model.errors import Blame, ClonosError, EnvironmentFault, InternalError, JobError


class PortTaken(EnvironmentFault):
    """Fields with and without a default, and something that is none."""

    port: int
    host: str = "here"
    tries: ClassVar[int] = 3

    def __str__(self) -> str:
        return f"port {self.port} of {self.host} is taken"


class PortTakenByUs(PortTaken):
    """A field after those of its base."""

    pid: int = 0


class PortRefused(PortTaken):
    """Arguments that are no fields."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        super().__init__(int(port), host)
        self.args = (address,)


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (PortTaken(1), (1, "here")),
        (PortTaken(1, "there"), (1, "there")),
        (PortTaken(host="there", port=1), (1, "there")),
        (PortTakenByUs(1, pid=7), (1, "here", 7)),
        (PortTakenByUs(1, "there", 7), (1, "there", 7)),
    ],
)
def test_fields_are_given_by_position_or_name_and_reach_the_exception(
    error: PortTaken, fields: tuple[object, ...]
) -> None:
    assert error.args == fields
    assert (error.port, error.host) == fields[:2]
    assert not isinstance(error, PortTakenByUs) or error.pid == fields[2]


def test_a_pickled_error_keeps_its_fields_and_text() -> None:
    for error in (PortTaken(1, host="there"), PortTakenByUs(1, pid=7), PortRefused("there:1"), JobError("no")):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(copy), copy.args, str(copy)) == (type(error), error.args, str(error))
        assert vars(copy) == vars(error)


def test_a_surplus_missing_or_unknown_field_raises_type_error() -> None:
    with pytest.raises(TypeError, match="port"):
        PortTaken()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        PortTaken(1, "here", 3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="prot"):
        PortTaken(1, prot=2)  # type: ignore[call-arg]


def test_an_error_without_fields_takes_one_text() -> None:
    for kind in (ClonosError, JobError, EnvironmentFault, InternalError):
        assert str(kind("the disk is full")) == "the disk is full"


def test_the_class_of_an_error_names_who_is_to_blame() -> None:
    assert PortTakenByUs(1).blame is Blame.ENVIRONMENT
    assert (JobError.blame, InternalError.blame) == (Blame.JOB, Blame.LIBRARY)
