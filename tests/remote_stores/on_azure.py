"""The checkpoint store and files on an emulator of Azure: `make stores`."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pytest
from deltalake import DeltaTable

from clonos.connectors import delta
from clonos.connectors.delta.table_log import storage_options
from clonos.io.store.bucket import Bucket, bucket_of
from clonos.io.store.cloud_files import CloudLocation
from tests.files_contract import FilesContract
from tests.remote_stores.azurite import ACCOUNT, KEY, azurite
from tests.store_contract import StoreContract
from tests.unit.connectors.writing import JOB, part_of

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One emulator for all tests."""
    with azurite(tmp_path_factory.mktemp("azure")) as address:
        yield address


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the account, in the environment."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)


@pytest.fixture
def url(server: str, tmp_path: Path) -> str:
    """A folder of its own for each test."""
    return f"az://container/{tmp_path.name}?account={ACCOUNT}&endpoint={server}"


class TestStoreOnAzure(StoreContract):
    """Azurite."""


class TestFilesOnAzure(FilesContract):
    """Azurite."""


def test_a_copy_that_the_server_has_only_begun_is_an_error_that_removes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bucket_of(url.replace(f"/{url.split('/')[3].partition('?')[0]}", "", 1))
    assert isinstance(store, Bucket)
    store.create("begun/one", b"content")
    with monkeypatch.context() as patched:
        patched.setattr("obstore.copy", lambda client, key, target: store.create(target, b""))
        with pytest.raises(OSError, match="still copying") as caught:
            store.move("begun/one", "begun/two")
    assert caught.value.errno == errno.EBUSY
    assert store.keys_below("begun") == ["begun/one", "begun/two"]
    store.move("begun/one", "begun/two")
    assert store.content("begun/two") == b"content"


def test_a_delta_table_has_the_rows_of_each_checkpoint_once(url: str) -> None:
    sink = delta.table(url, schema=pyarrow.schema([("n", pyarrow.int64())]))
    sink.prepare_output(JOB, resume=False, overwrite=False)
    for checkpoint in (1, 2):
        part = part_of(sink, checkpoint, [{"n": checkpoint}])
        for _ in range(2):
            sink.commit(JOB, checkpoint, [part])
    table = DeltaTable(url.partition("?")[0], storage_options=storage_options(url))
    assert sorted(table.to_pyarrow_table().column("n").to_pylist()) == [1, 2]
    assert sink.roll_back(JOB, 1) == [2]
    table.update_incremental()
    assert table.to_pyarrow_table().column("n").to_pylist() == [1]


@pytest.mark.parametrize(
    ("container", "key", "expected", "kind"),
    [
        ("missing", KEY, "there is no such bucket", OSError),
        ("container", "AAAA", "AZURE_STORAGE_ACCOUNT_KEY", PermissionError),
        ("container", "", "there are no credentials .* AZURE_STORAGE_ACCOUNT_KEY", PermissionError),
    ],
)
def test_a_missing_container_and_wrong_credentials_are_named(
    server: str, container: str, key: str, expected: str, kind: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    if key:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
    else:
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    store = Bucket(CloudLocation.parse(f"az://{container}?account={ACCOUNT}&endpoint={server}"))
    with pytest.raises(kind, match=expected):
        store.keys_below("a")
