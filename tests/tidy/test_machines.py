"""The document of the machines is what their tables say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import pytest

from clonos.core.model.machine import Machine, Table
from tests.tidy import machine_diagrams

pytestmark = pytest.mark.static

S = TypeVar("S")


def test_the_document_of_the_machines_is_drawn_from_their_tables() -> None:
    assert machine_diagrams.PAGE.read_text("utf-8") == machine_diagrams.page(), (
        "docs/design/machines.md is stale: run python -m tests.tidy.machine_diagrams"
    )


@dataclass
class Open:
    """A door that people can walk through."""


@dataclass
class Shut:
    """A door that they cannot walk through."""


class Pushed:
    """Somebody has pushed the door."""


def _swing(_state: Open, _event: Pushed) -> tuple[Open | Shut, tuple[str, ...]]:
    return Shut(), ("bang",)


def _stay(state: S, _event: Pushed) -> tuple[S, tuple[str, ...]]:
    return state, ()


def test_an_arrow_is_drawn_to_each_other_state_that_the_type_of_the_handler_names() -> None:
    table: Table[tuple[Open | Shut, tuple[str, ...]]] = {(Open, Pushed): _swing, (Shut, Pushed): _stay}
    assert machine_diagrams.arrows(Machine("door", table)) == {("Open", "Shut"): ["Pushed"]}
