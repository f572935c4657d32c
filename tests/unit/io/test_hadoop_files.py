"""Stores in HDFS, as far as no cluster is needed; `make stores` runs the rest."""

from __future__ import annotations

import pytest

from clonos.io.store.object_files import StoreFailed, StoreUnsupported
from clonos.io.store.store import CheckpointStore

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("hdfs://namenode:8020", "expected hdfs://namenode:port/folder"),
        ("hdfs:///folder", "expected hdfs://namenode:port/folder"),
        ("webhdfs://namenode:9870/", "expected webhdfs://namenode:port/folder"),
        ("webhdfs://namenode:9870/folder?user=me", "no options and no user; set HADOOP_USER_NAME"),
        ("hdfs://me@namenode:8020/folder", "no options and no user; set HADOOP_USER_NAME"),
    ],
)
def test_a_url_without_a_folder_or_with_extra_parts_is_refused(url: str, reason: str) -> None:
    with pytest.raises(StoreUnsupported, match=reason):
        CheckpointStore(url)


@pytest.mark.keeps_sockets
@pytest.mark.parametrize("url", ["hdfs://127.0.0.1:1/folder", "webhdfs://127.0.0.1:1/folder"])
def test_an_unreachable_namenode_is_a_store_failure(url: str) -> None:
    with pytest.raises(StoreFailed, match=r"failed to create chain/1: .*[Cc]onnection refused"):
        CheckpointStore(url).files.create_if_absent("chain/1", b"1")


def test_an_unconfigured_name_service_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    with pytest.raises(StoreFailed, match=r"hdfs://nowhere/folder failed to connect: .*No NameNode hosts"):
        CheckpointStore("hdfs://nowhere/folder")
