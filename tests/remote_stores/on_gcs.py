"""The checkpoint store on an emulator of GCS: `make stores`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.io.store.store import CheckpointStore
from tests.remote_stores.gcs_emulator import gcs_emulator
from tests.store_contract import StoreContract

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One emulator for all tests."""
    with gcs_emulator(tmp_path_factory.mktemp("gcs")) as address:
        yield address


@pytest.fixture
def url(server: str, tmp_path: Path) -> str:
    """A store of its own for each test."""
    return f"gs://bucket/{tmp_path.name}?endpoint={server}"


class TestGcs(StoreContract):
    """fake-gcs-server."""


def test_the_emulator_is_found_through_the_variable_of_googles_libraries(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server)
    store = CheckpointStore(f"gs://bucket/{tmp_path.name}")
    store.open_job("one")
    assert store.files.list("chain") == ["chain/00000000000000000001"]
