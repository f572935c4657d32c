"""Errors are pickled whole between processes, and keep their text."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable

import pytest

from clonos.connectors.kit.external_system import ExternalSystem
from clonos.core.coordinator.coordinator_effects import JobFailed
from clonos.core.model.errors import Blame, ClonosError
from clonos_chaos.user.harness_steps import HarnessMisused
from tests.tidy.error_classes import error_classes

SAMPLES: dict[str, object] = {
    "str": "text",
    "bytes": b"text",
    "int": 7,
    "int | None": 7,
    "float": 0.5,
    "bool": True,
    "Any": {"reason": "text"},
    "tuple[str, ...]": ("one", "other"),
    "tuple[int, ...]": (1, 2),
    "JobFailed": JobFailed(Blame.JOB, "it fails"),
    "ExternalSystem": ExternalSystem("Ledger", "ledger", "pyledger", "ledger", "Start it.", "Correct its name."),
}
CHOICES: dict[str, dict[str, object]] = {"AccessRefused": {"kind": "time"}}
"""Values of fields that take some texts only, by class."""

MADE = {
    name: cls
    for name, cls in sorted(error_classes().items())
    if "__init__" in vars(cls) and not cls.__module__.startswith("tests.")
}


def _made(cls: type[ClonosError], by_keyword: bool) -> ClonosError:
    _, *parameters = inspect.signature(cls.__init__).parameters.values()
    kinds = {parameter.name: parameter.annotation for parameter in parameters}
    if "values" in kinds:  # it declares its fields
        declared = {name: kind for base in cls.__mro__[::-1] for name, kind in inspect.get_annotations(base).items()}
        kinds = {name: declared[name] for name in cls._fields.parameters}
    make: Callable[..., ClonosError] = cls
    samples = {name: SAMPLES[kind] for name, kind in kinds.items()} | CHOICES.get(cls.__name__, {})
    return make(**samples) if by_keyword else make(*samples.values())


def test_the_error_classes_of_the_library_are_found() -> None:
    assert {"ReplayDiverged", "SegmentUnreadable", "TableRefused", "JobCrashed", HarnessMisused.__name__} <= set(MADE)


@pytest.mark.parametrize("by_keyword", [False, True], ids=["by position", "by keyword"])
def test_an_error_is_unchanged_by_pickling(by_keyword: bool) -> None:
    for name, error_class in MADE.items():
        error = _made(error_class, by_keyword)
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert type(again) is type(error), name
        assert vars(again) == vars(error), name
        assert str(again) == str(error), name
