"""Two hosts on one machine: network namespaces on a bridge, a Spark standalone worker in each, the master outside.

A host is cut off by taking its link down: the kernel makes the partition, not a proxy. This needs root and the command
``ip``; without them the scenario is refused. ``close`` removes everything.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from clonos.core.model.errors import EnvironmentFault
from clonos_chaos.real.log_tail import last_line

HOSTS: Final = 2
CORES: Final = 6
START_TIMEOUT_S: Final = 60.0
END_TIMEOUT_S: Final = 10.0


class HostsRefused(EnvironmentFault):
    """The machine does not permit network namespaces. The scenario was not run."""

    reason: str

    def __str__(self) -> str:
        return (
            f"this scenario divides the machine into hosts, which it does not allow ({self.reason}): it was not run."
            " It needs Linux, root, the command `ip` (iproute2) and Spark's scripts."
        )


@dataclass(frozen=True, slots=True)
class Host:
    """Namespace of a host, and the near end of its link."""

    namespace: str
    link: str
    address: str
    name: str


WORKER_PORT: Final = 43_000
"""Port of the worker in each namespace, so that a firewall can let it pass."""


class Hosts:
    """Network of hosts with a running Spark cluster. ``address``: of the near side, where the driver runs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Makes the network and starts the cluster. Raises HostsRefused."""
        self._folder, self._environment = folder, dict(environment)
        third = os.getpid() % 250 + 1
        self._bridge = f"cls{os.getpid() % 100_000}"
        self.address = f"10.213.{third}.1"
        self._hosts = [
            Host(
                f"{self._bridge}-{number}", f"{self._bridge}v{number}", f"10.213.{third}.{number + 2}", f"host-{number}"
            )
            for number in range(HOSTS)
        ]
        with ExitStack() as stack:
            self._stack = stack
            self._divide()
            self.master = f"spark://{self.address}:{self._start_cluster()}"
            self._stack = stack.pop_all()

    @property
    def driver_environment(self) -> dict[str, str]:
        """Returns the environment of a driver that all hosts can reach."""
        return {"SPARK_LOCAL_IP": self.address, "SPARK_LOCAL_HOSTNAME": self.address}

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Returns the hosts of the cluster; the driver runs on another one, the near side."""
        return tuple(self._hosts)

    def cut(self, pids: Collection[int]) -> list[str]:
        """Takes down the links of the hosts of these processes; returns their addresses."""
        inodes = {_namespace_of(Path(f"/proc/{pid}/ns/net")) for pid in pids}
        affected = [host for host in self._hosts if _namespace_of(Path("/run/netns", host.namespace)) in inodes]
        for host in affected:
            _ip("link", "set", host.link, "down")
        return [host.address for host in affected]

    def heal(self) -> None:
        """Takes all links up."""
        for host in self._hosts:
            _ip("link", "set", host.link, "up")

    def close(self) -> None:
        """Ends the cluster, and removes the network."""
        self._stack.close()

    # ------------------------------------------------------------------ the network

    def _divide(self) -> None:
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise HostsRefused("it is not root" if os.geteuid() else "there is no ip")
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            self._stack.callback(_ip, "link", "del", self._bridge)
            _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for host in self._hosts:
                self._add(host)
        except subprocess.CalledProcessError as error:
            raise HostsRefused(" ".join(str(error.stderr or error).split())) from None

    def _add(self, host: Host) -> None:
        _ip("netns", "add", host.namespace)
        self._stack.callback(_ip, "netns", "del", host.namespace)
        inner = f"{host.link}i"
        _ip("link", "add", host.link, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", host.namespace)
        _ip("link", "set", host.link, "master", self._bridge)
        _ip("link", "set", host.link, "up")
        _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", inner)
        _ip("-n", host.namespace, "link", "set", inner, "up")
        _ip("-n", host.namespace, "link", "set", "lo", "up")

    # ------------------------------------------------------------------ the cluster

    def _start_cluster(self) -> int:
        with socket.create_server((self.address, 0)) as probe:
            port = int(probe.getsockname()[1])
        at = ["--host", self.address, "--port", str(port), "--webui-port", "0"]
        self._start("master", [], ["org.apache.spark.deploy.master.Master", *at], self.address)
        self._await("master", "I have been elected leader")
        for host in self._hosts:
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", host.address, "--webui-port", "0"]
            worker += ["--port", str(WORKER_PORT)]
            worker += ["--cores", str(CORES), "--memory", "2g", "--work-dir", str(self._folder / host.namespace)]
            # Each host has a hostname of its own, by which jobs place tasks.
            within = ["ip", "netns", "exec", host.namespace, "unshare", "--uts"]
            within += ["sh", "-c", 'hostname "$0" && exec "$@"', host.name]
            self._start(host.namespace, within, [*worker, f"spark://{self.address}:{port}"], host.address)
        for host in self._hosts:
            self._await(host.namespace, "Successfully registered with master")
        return port

    def _start(self, name: str, within: list[str], arguments: list[str], address: str) -> None:
        home = _spark_home()
        environment = self._environment | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": address,
            "SPARK_LOCAL_HOSTNAME": address,
            "PYSPARK_PYTHON": sys.executable,
        }
        with open(self._folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [*within, str(home / "bin" / "spark-class"), *arguments],
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._stack.callback(_end, process)

    def _await(self, name: str, words: str) -> None:
        log = self._folder / f"{name}.log"
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while words not in log.read_text("utf-8", "replace"):
            if time.monotonic() > deadline_s:
                reason = f"its last output: {last_line(log)}"
                raise EnvironmentFault(f"Spark's {name} did not start within {START_TIMEOUT_S:g} s; {reason}")
            time.sleep(0.05)


def _spark_home() -> Path:
    """Returns SPARK_HOME, or the folder of the installed package."""
    named = os.environ.get("SPARK_HOME")
    if named:
        return Path(named)
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise HostsRefused("there is no Spark")
    return Path(found.origin).parent


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _namespace_of(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:  # the process has died meanwhile
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
