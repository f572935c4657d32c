"""Errors travel between processes whole, and keep what they say."""

from __future__ import annotations

import inspect
import pickle

import pytest

from clonos.core.coordinator.coordinator_effects import Fault, JobFailed
from clonos.core.model.errors import ClonosError
from tests.tidy.error_classes import error_classes

SAMPLES: dict[str, object] = {
    "str": "text",
    "bytes": b"text",
    "int": 7,
    "int | None": 7,
    "float": 0.5,
    "bool": True,
    "tuple[str, ...]": ("one", "other"),
    "tuple[int, ...]": (1, 2),
    "JobFailed": JobFailed(Fault.JOB, "it fails"),
}
MADE = {name: cls for name, cls in sorted(error_classes().items()) if "__init__" in vars(cls)}


def _made(cls: type[ClonosError], by_keyword: bool) -> ClonosError:
    _, *parameters = inspect.signature(cls.__init__).parameters.values()
    samples = {parameter.name: SAMPLES[parameter.annotation] for parameter in parameters}
    return cls(**samples) if by_keyword else cls(*samples.values())


def test_the_errors_of_the_library_are_found() -> None:
    assert {"ReplayDiverged", "SegmentUnreadable", "TableRefused", "JobCrashed"} <= set(MADE)


@pytest.mark.parametrize("by_keyword", [False, True], ids=["by position", "by keyword"])
@pytest.mark.parametrize("name", MADE)
def test_an_error_comes_out_of_a_pickle_as_it_went_in(name: str, by_keyword: bool) -> None:
    error = _made(MADE[name], by_keyword)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == str(error)
