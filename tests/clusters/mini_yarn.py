"""A resource manager and two node managers on loopback: Hadoop's mini cluster, with real containers.

It needs Java, and once the network: some jars come from Maven Central and are kept in ``build/jars``.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tests.remote_stores.mini_hdfs import FROM_SPARK, fetched_jars, jars_of_spark

NODES: Final = 2
START_LIMIT_MS: Final = 60_000
NODE_MB, NODE_CORES = 8_192, 8
BOUNCY_CASTLE: Final = "org/bouncycastle/{0}-jdk18on/1.78.1/{0}-jdk18on-1.78.1.jar"
FETCHED: Final = tuple(map(BOUNCY_CASTLE.format, ("bcprov", "bcpkix", "bcutil")))
ALSO_FROM_SPARK: Final = ("commons-*", "hk2-*", "jackson-*", "jakarta.*", "jaxb-*", "jersey-*")

SCHEDULER: Final = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
"""The capacity scheduler wants a file with queues."""

SETTINGS: Final = {
    "fs.defaultFS": "file:///",
    "yarn.minicluster.yarn.nodemanager.resource.memory-mb": str(NODE_MB),
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.9",
    "yarn.nodemanager.pmem-check-enabled": "false",
    "yarn.nodemanager.resource.cpu-vcores": str(NODE_CORES),
    "yarn.nodemanager.resource.memory-mb": str(NODE_MB),
    "yarn.nodemanager.vmem-check-enabled": "false",
    "yarn.resourcemanager.scheduler.class": SCHEDULER,
    "yarn.scheduler.minimum-allocation-mb": "128",
}


@contextmanager
def mini_yarn(folder: Path) -> Iterator[Path]:
    """Context with the folder of a configuration, for ``HADOOP_CONF_DIR``. The cluster writes into ``folder``."""
    configuration, data = folder / "hadoop", folder / "cluster"
    configuration.mkdir()
    data.mkdir()
    class_path = [*fetched_jars(FETCHED), *jars_of_spark((*FROM_SPARK, *ALSO_FROM_SPARK))]
    (py4j,) = jars_of_spark(("py4j-*",))
    with (data / "out.log").open("wb") as out, (data / "errors.log").open("wb") as errors:
        port, process = launch_gateway(
            classpath=":".join(map(str, class_path)),
            jarpath=str(py4j),
            javaopts=["-Xmx768m", "-XX:TieredStopAtLevel=1", f"-Dhadoop.log.dir={data}/logs"],
            cwd=str(data),
            die_on_exit=True,
            return_proc=True,
            redirect_stdout=out,
            redirect_stderr=errors,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        try:
            _start(gateway, configuration / "yarn-site.xml")
            yield configuration
        finally:
            gateway.shutdown()
            process.stdin.close()
            process.kill()
            process.wait()


def _start(gateway: JavaGateway, site: Path) -> None:
    jvm = gateway.jvm
    settings = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in SETTINGS.items():
        settings.set(name, value)
    cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster(f"yarn-{socket.gethostname()}", NODES, 1, 1)
    cluster.init(settings)
    cluster.start()
    assert cluster.waitForNodeManagersToConnect(START_LIMIT_MS), "the node managers did not connect"
    file = jvm.java.io.FileOutputStream(str(site))
    cluster.getConfig().writeXml(file)
    file.close()
