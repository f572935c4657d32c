"""Iceberg tables in a catalog of SQLite, and the end of the threads that pyiceberg keeps."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.concurrent import ExecutorFactory

NAME = "shop.orders"


def catalog_in(folder: Path) -> dict[str, str]:
    """The properties of a catalog, and of a warehouse beside it."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}


def opened(catalog: dict[str, str], name: str = NAME) -> Any:
    """The table as it is now, by pyiceberg alone."""
    return load_catalog(**catalog).load_table(name)


def found(catalog: dict[str, str], name: str = NAME) -> list[Any]:
    """The rows of the table, by their number."""
    return sorted(opened(catalog, name).scan().to_arrow().to_pylist(), key=lambda each: int(each["n"]))


@contextmanager
def threads_ended() -> Iterator[None]:
    """Gives pyiceberg threads that end afterwards; its own are kept as long as the process."""
    with ThreadPoolExecutor() as threads, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ExecutorFactory, "get_or_create", lambda: threads)
        yield


@pytest.fixture(autouse=True)
def iceberg_threads() -> Iterator[None]:
    """Ends what pyiceberg keeps after each test."""
    with threads_ended():
        yield


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """A catalog of the test alone."""
    return catalog_in(tmp_path)
