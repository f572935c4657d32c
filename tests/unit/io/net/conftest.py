"""Stations that are closed at the end of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from zmq.utils.garbage import gc as zero_copy_keeper

from tests.unit.io.net.transports import Station


@pytest.fixture
def stations(tmp_path: Path) -> Iterator[Any]:
    """Makes stations and closes them all."""
    with ExitStack() as stack:

        def make(slot: int, mode: str = "tcp", **options: Any) -> Station:
            folder = Path(f"{tmp_path}/{slot}-{len(list(tmp_path.iterdir()))}") if mode == "ipc" else None
            station = Station(slot, folder, None if mode == "ipc" else mode == "curve", **options)
            stack.callback(station.close)
            return station

        yield make
    zero_copy_keeper.stop()  # the thread that pyzmq starts at the first large frame lives as long as the process else
