"""The checkpoint store on a real namenode and datanode, by Hadoop RPC and by WebHDFS: `make stores`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from clonos.io.store.hadoop_files import HadoopFiles
from clonos.io.store.object_files import StoreFailed
from tests.files_contract import FilesContract
from tests.remote_stores.mini_hdfs import MiniHdfs, mini_hdfs
from tests.store_contract import StoreContract

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    """One cluster for all tests."""
    with mini_hdfs(tmp_path_factory.mktemp("hdfs")) as started:
        yield started


class TestHadoopRpc(StoreContract):
    """``hdfs://``"""

    @pytest.fixture
    def url(self, cluster: MiniHdfs, tmp_path: Path) -> str:
        """A store of its own for each test."""
        return f"hdfs://{cluster.rpc_address}/stores/{tmp_path.name}"


class TestWebHdfs(StoreContract):
    """``webhdfs://``"""

    @pytest.fixture
    def url(self, cluster: MiniHdfs, tmp_path: Path) -> str:
        """A store of its own for each test."""
        return f"webhdfs://{cluster.http_address}/stores/{tmp_path.name}"


class TestFilesByHadoopRpc(FilesContract):
    """``hdfs://``"""

    @pytest.fixture
    def url(self, cluster: MiniHdfs, tmp_path: Path) -> str:
        """A folder of its own for each test."""
        return f"hdfs://{cluster.rpc_address}/files/{tmp_path.name}"


class TestFilesByWebHdfs(FilesContract):
    """``webhdfs://``"""

    @pytest.fixture
    def url(self, cluster: MiniHdfs, tmp_path: Path) -> str:
        """A folder of its own for each test."""
        return f"webhdfs://{cluster.http_address}/files/{tmp_path.name}"


@pytest.fixture(params=["hdfs", "webhdfs"])
def files(request: pytest.FixtureRequest, cluster: MiniHdfs, tmp_path: Path) -> HadoopFiles:
    """Either way to it."""
    address = cluster.rpc_address if request.param == "hdfs" else cluster.http_address
    return HadoopFiles(f"{request.param}://{address}/stores/{tmp_path.name}")


def test_an_unfinished_write_leaves_no_object(files: HadoopFiles) -> None:
    files._client.create(f"{files._root}/chain/.7.0123", iter((b"tor",)), 3)
    assert files.list("chain") == []
    assert files.create_if_absent("chain/7", b"whole")
    assert files.list("chain") == ["chain/7"]


def test_a_writer_that_loses_the_race_leaves_no_file(files: HadoopFiles) -> None:
    assert files.create_if_absent("chain/7", b"first")
    assert not files.create_if_absent("chain/7", b"second")
    assert list(files._client.files_below(files._root)) == [f"{files._root}/chain/7"]


def test_names_may_have_characters_that_urls_and_shells_quote(files: HadoopFiles) -> None:
    name = "objects/a b/ü%20&?#+'x"
    files.write(name, b"content")
    assert files.list("objects") == [name]
    assert files.read(name) == b"content"


def test_a_refusal_of_the_namenode_is_a_store_failure_with_its_message_and_without_its_stack(
    files: HadoopFiles,
) -> None:
    files.write("objects/x", b"")
    with pytest.raises(StoreFailed, match=r"failed to write objects/x/y: .*is not a directory") as caught:
        files.write("objects/x/y", b"")
    assert "\tat " not in str(caught.value)
    assert "\\tat " not in str(caught.value)


SITE = """<configuration>
<property><name>dfs.ha.namenodes.cluster</name><value>gone,there</value></property>
<property><name>dfs.namenode.rpc-address.cluster.gone</name><value>127.0.0.1:1</value></property>
<property><name>dfs.namenode.rpc-address.cluster.there</name><value>{address}</value></property>
</configuration>
"""


def test_the_namenodes_of_a_service_come_from_the_configuration_and_one_of_them_may_be_gone(
    cluster: MiniHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hdfs-site.xml").write_text(SITE.format(address=cluster.rpc_address), "utf-8")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    files = HadoopFiles(f"hdfs://cluster/stores/{tmp_path.name}")
    assert files.create_if_absent("chain/1", b"1")
    assert not files.create_if_absent("chain/1", b"2")
    assert files.read("chain/1") == b"1"


def test_the_environment_names_the_user_that_writes(
    cluster: MiniHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The namenode keeps strangers out of what is not theirs."""
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    for address in (f"hdfs://{cluster.rpc_address}", f"webhdfs://{cluster.http_address}"):
        with pytest.raises(StoreFailed, match=r"Permission denied: user=stranger"):
            HadoopFiles(f"{address}/private-{tmp_path.name}").write("objects/1", b"state")


def test_a_namenode_that_is_paused_or_dead_is_a_store_failure(tmp_path: Path) -> None:
    with mini_hdfs(tmp_path) as short_lived:
        stores = [
            HadoopFiles(f"hdfs://{short_lived.rpc_address}/x", call_s_max=5.0),
            HadoopFiles(f"webhdfs://{short_lived.http_address}/x"),
        ]
        for store in stores:
            store.write("objects/1", b"state")

        os.kill(short_lived.process.pid, signal.SIGSTOP)
        with pytest.raises(StoreFailed, match=r"failed to create chain/1: .* silent"):
            stores[0].create_if_absent("chain/1", b"1")
        os.kill(short_lived.process.pid, signal.SIGCONT)
        assert stores[0].read("objects/1") == b"state"

        os.kill(short_lived.process.pid, signal.SIGKILL)
        short_lived.process.wait()
        for store in stores:
            with pytest.raises(StoreFailed, match="failed to create chain/1"):
                store.create_if_absent("chain/1", b"1")
            with pytest.raises(StoreFailed, match="failed to read objects/1"):
                store.read("objects/1")
