"""A fixture that runs a module's tests twice: on the native kernels, and on their twins in numpy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clonos.kernels import choice


@pytest.fixture(params=["native", "numpy"], scope="module", autouse=True)
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the kernels in use."""
    name: str = request.param
    if name == "native" and choice.native is None:
        pytest.skip("the native kernels were not built, or CLONOS_KERNELS is numpy")
    with pytest.MonkeyPatch.context() as patch:
        if name == "numpy":
            patch.setattr(choice, "native", None)
        yield name
