"""Ends what pyiceberg keeps after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harnesses.iceberg_tables import catalog_in, threads_ended


@pytest.fixture(autouse=True)
def iceberg_threads() -> Iterator[None]:
    with threads_ended():
        yield


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    return catalog_in(tmp_path)
