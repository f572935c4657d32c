"""A namenode and a datanode on loopback: Hadoop's mini cluster, in the version of the client that pyspark ships.

It needs Java, and once the network: some jars (57 MB) come from Maven Central and are kept in ``build/jars``.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.speed import scaled

ROOT = Path(__file__).parent.parent.parent
CACHED_JARS = ROOT / "build" / "jars"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
CLUSTER = "org.apache.hadoop.test.MiniDFSClusterManager"
# The cluster is a class of Hadoop's tests, and those lean on JUnit.
FETCHED = (
    "org/apache/hadoop/hadoop-client-minicluster/{hadoop}/hadoop-client-minicluster-{hadoop}.jar",
    "org/junit/jupiter/junit-jupiter-api/5.11.4/junit-jupiter-api-5.11.4.jar",
    "org/junit/platform/junit-platform-commons/1.11.4/junit-platform-commons-1.11.4.jar",
    "org/opentest4j/opentest4j/1.3.0/opentest4j-1.3.0.jar",
)
FROM_SPARK = (
    "hadoop-client-*",
    "jakarta.servlet-api-*",
    "javax.servlet-api-*",
    "jcl-over-slf4j-*",
    "log4j-*",
    "slf4j-api-*",
    "snappy-java-*",
)
START_LIMIT_S = scaled(90.0)
LOOK_EVERY_S = 0.1
FETCH_LIMIT_S = scaled(300.0)


@dataclass(frozen=True)
class MiniHdfs:
    """Addresses of the namenode, and its process."""

    rpc_address: str
    http_address: str
    process: subprocess.Popen[bytes]


@contextmanager
def mini_hdfs(folder: Path) -> Iterator[MiniHdfs]:
    """A cluster that lives as long as the block. What it writes lies in the folder."""
    found = folder / "cluster.xml"
    class_path = ":".join(map(str, [*fetched_jars(), *jars_of_spark(FROM_SPARK)]))
    arguments = ["-datanodes", "1", "-format", "-writeConfig", str(found), "-D", "dfs.replication=1"]
    with (folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", class_path, CLUSTER, *arguments],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            yield _await_addresses(process, found, folder / "cluster.log")
        finally:
            process.kill()
            process.wait()


def _await_addresses(process: subprocess.Popen[bytes], found: Path, log: Path) -> MiniHdfs:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        text = found.read_text("utf-8") if found.exists() else ""
        if text.rstrip().endswith("</configuration>"):
            rpc_address = _value(text, "fs.defaultFS").removeprefix("hdfs://")
            return MiniHdfs(rpc_address, _value(text, "dfs.namenode.http-address"), process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_EVERY_S)
    raise RuntimeError(f"the mini cluster did not start, exit code {process.poll()}:\n{log.read_text()[-3000:]}")


def _value(configuration: str, name: str) -> str:
    match = re.search(rf"<name>{re.escape(name)}</name><value>([^<]*)<", configuration)
    assert match is not None, f"the mini cluster wrote no {name}"
    return match[1]


def jars_of_spark(patterns: Iterable[str]) -> list[Path]:
    """Jars that pyspark ships, by the beginnings of their names."""
    return [jar for pattern in patterns for jar in sorted(SPARK_JARS.glob(f"{pattern}.jar"))]


def fetched_jars(others: Iterable[str] = ()) -> list[Path]:
    """Jars from Maven Central: those of the mini cluster, and others."""
    client = next(SPARK_JARS.glob("hadoop-client-api-*.jar")).stem
    return [_fetch(path.format(hadoop=client.removeprefix("hadoop-client-api-"))) for path in (*FETCHED, *others)]


def _fetch(path: str) -> Path:
    """A jar from Maven Central, with the checksum that it has there."""
    jar = CACHED_JARS / path.rpartition("/")[2]
    if not jar.exists():
        print(f"fetching {jar.name} from Maven Central into {CACHED_JARS}", file=sys.stderr)
        content, checksum = (_get(f"{MAVEN_CENTRAL}/{path}{suffix}") for suffix in ("", ".sha1"))
        actual = hashlib.sha1(content).hexdigest()
        assert actual == checksum.decode().split()[0], f"{path}: checksum {actual}, expected {checksum.decode()}"
        CACHED_JARS.mkdir(parents=True, exist_ok=True)
        part = jar.with_suffix(".part")
        part.write_bytes(content)
        part.rename(jar)
    return jar


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=FETCH_LIMIT_S) as reply:
        content: bytes = reply.read()
        return content
