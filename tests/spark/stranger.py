"""Another process of this machine that connects to Spark's ports: first without the secret, then with it.

Run as ``python stranger.py MARKER ENDPOINT@HOST:PORT...`` with the secret in its standard input. It prints a line of
JSON for each attempt: who tries, the target, and whether the endpoint was reached. It asks each worker that it reaches
to launch a driver whose JVM writes the file MARKER-<who tries>.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

ASK_TIMEOUT = "10s"


def main() -> None:
    """Tries everything."""
    marker, targets = sys.argv[1], sys.argv[2:]
    secret = sys.stdin.readline().strip()
    launch: Any = launch_gateway
    gateway = launch(SparkConf(loadDefaults=False).setMaster("local"))
    try:
        _try_all(gateway.jvm, "nobody", "", marker, targets)
        _try_all(gateway.jvm, "insider", secret, marker, targets)
    finally:
        gateway.shutdown()


def _try_all(jvm: Any, who: str, secret: str, marker: str, targets: list[str]) -> None:
    settings = jvm.org.apache.spark.SparkConf(False).set("spark.rpc.askTimeout", ASK_TIMEOUT)
    settings.set("spark.rpc.lookupTimeout", ASK_TIMEOUT)
    if secret:
        settings.set("spark.authenticate", "true").set("spark.authenticate.secret", secret)
    kind = jvm.org.apache.spark.SecurityManager
    security = kind(settings, jvm.scala.Option.empty(), getattr(kind, "$lessinit$greater$default$3")())
    environment = jvm.org.apache.spark.rpc.RpcEnv.create(who, "127.0.0.1", 0, settings, security, True)
    for target in targets:
        name, _, address = target.partition("@")
        host, _, port = address.rpartition(":")
        try:
            endpoint = environment.setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host, int(port)), name)
        except Py4JError:
            endpoint = None
        if endpoint is not None and name == "Worker":
            endpoint.send(_driver_that_writes(jvm, f"{marker}-{who}"))
        print(json.dumps([who, target, endpoint is not None]), flush=True)
    environment.shutdown()


def _driver_that_writes(jvm: Any, path: str) -> Any:
    """Message of a master to a worker that launches an application's driver. Its main class does not exist."""
    deploy, python = jvm.org.apache.spark.deploy, jvm.org.apache.spark.api.python.PythonUtils

    def sequence(*items: str) -> Any:
        found = jvm.java.util.ArrayList()
        for item in items:
            found.add(item)
        return python.toSeq(found)

    nothing = python.toScalaMap(jvm.java.util.HashMap())
    command = deploy.Command("Nothing", sequence(), nothing, sequence(), sequence(), sequence(f"-Xlog:gc:file={path}"))
    jar = jvm.org.apache.spark.SparkConf(False).getClass().getProtectionDomain().getCodeSource().getLocation()
    description = deploy.DriverDescription(jar.toString(), 64, 1, False, command, sequence())
    return getattr(deploy, "DeployMessages$LaunchDriver")("driver-of-a-stranger", description, nothing)


if __name__ == "__main__":
    main()
