"""A fixture that runs a module's tests twice: with all records passing the exchange, and with those chosen in front."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clonos.operators.columnar.choosing.batch_choice import BatchChoice


@pytest.fixture(params=["all pass", "chosen in front"], scope="module", autouse=True)
def in_front(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which records pass the exchange."""
    name: str = request.param
    with pytest.MonkeyPatch.context() as patch:
        if name == "chosen in front":
            patch.setattr(BatchChoice, "rows_min", 1)
            patch.setattr(BatchChoice, "share_max", 1)
        yield name
