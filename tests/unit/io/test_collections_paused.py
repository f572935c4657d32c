"""Pause of the garbage collector while a job starts."""

from __future__ import annotations

import gc

import pytest

from clonos.io.system.collections_paused import collections_paused


@pytest.mark.parametrize("was_enabled", [True, False])
def test_a_pause_ends_as_it_found_the_collector_after_an_error_too(was_enabled: bool) -> None:
    if not was_enabled:
        gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), collections_paused():
            1 // gc.isenabled()
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()
