"""Harnesses that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clonos.testing import Harness


@pytest.fixture
def harness() -> Iterator[Callable[..., Harness]]:
    made: list[Harness] = []

    def make(*arguments: Any, **named: Any) -> Harness:
        made.append(Harness(*arguments, **named))
        return made[-1]

    yield make
    for each in made:
        each.close()
