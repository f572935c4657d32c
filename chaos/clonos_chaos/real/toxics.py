"""Network faults through Toxiproxy: its real server, driven by toxiproxy-python.

Each process of a job requests a proxy for each address that it connects to. A proxy is named for sender and receiver:
``<pid>.<peer's slot>.<port>``. A fault is injected into the proxies of its victims.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from clonos.core.model.errors import EnvironmentFault
from clonos_chaos.real.log_tail import last_line
from clonos_chaos.scenario.scenario import FaultKind, FaultSpec

START_TIMEOUT_S: Final = 10.0
API_TIMEOUT_S: Final = 5.0
TOXIC: Final = "fault"
BYTES_PER_KB: Final = 1_000


class ThroughToxiproxy:
    """Address rewriter of slots and driver. Called in their I/O threads; a local call takes about 1 ms."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._known: dict[tuple[int, str], str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.port,)  # each process has its own proxies

    def __call__(self, peer: int, address: str) -> str:
        found = self._known.get((peer, address))
        if found is None:
            found = self._known[peer, address] = f"tcp://{self._create(peer, address.removeprefix('tcp://'))}"
        return found

    def _create(self, peer: int, upstream: str) -> str:
        name = f"{os.getpid()}.{peer}.{upstream.rpartition(':')[2]}"
        body = json.dumps({"name": name, "upstream": upstream, "listen": "127.0.0.1:0", "enabled": True})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=API_TIMEOUT_S)
        try:
            connection.request("POST", "/proxies", body, {"Content-Type": "application/json"})
            made = json.loads(connection.getresponse().read())
        except OSError as error:
            raise EnvironmentFault(f"Toxiproxy at port {self.port} cannot be reached: {error}.") from None
        finally:
            connection.close()
        return str(made["listen"])


class Toxiproxy:
    """Running server. ``begin`` injects a fault into proxies, ``end`` removes it."""

    def __init__(self, program: Path, log: Path) -> None:
        from toxiproxy import Toxiproxy as Client

        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [str(program), "-host", "127.0.0.1", "-port", str(self.port)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._client: Any = Client()
        self._client.update_api_consumer("127.0.0.1", self.port)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._client.running():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.close()
                raise EnvironmentFault(f"Toxiproxy ({program}) did not start; its last output: {last_line(log)}")
            time.sleep(0.02)

    def link(self, name: str, upstream: str, listen: str = "127.0.0.1:0") -> Any:
        """Makes a proxy in front of a server; returns it, with its address as ``listen``."""
        return self._client.create(upstream=upstream, name=name, listen=listen)

    def begin(self, fault: FaultSpec, pids: Collection[int], slots: Collection[int]) -> int:
        """Injects a fault into what these processes send and, unless half open, into what is sent to them.

        Returns the number of proxies.
        """
        proxies = self._proxies(fault, pids, slots)
        for proxy in proxies:
            begin_at(proxy, fault)
        return len(proxies)

    def end(self, fault: FaultSpec, pids: Collection[int], slots: Collection[int]) -> None:
        """Removes the fault."""
        for proxy in self._proxies(fault, pids, slots):
            end_at(proxy, fault)

    def _proxies(self, fault: FaultSpec, pids: Collection[int], slots: Collection[int]) -> list[Any]:
        found = []
        for name, proxy in sorted(self._client.proxies().items()):
            sender, peer, _ = name.split(".")
            is_towards = int(peer) in slots and fault.kind is not FaultKind.HALF_OPEN
            if int(sender) in pids or is_towards:
                found.append(proxy)
        return found

    def close(self) -> None:
        """Ends the server."""
        self._process.kill()
        self._process.wait()


def begin_at(proxy: Any, fault: FaultSpec) -> None:
    """Injects a fault into one proxy."""
    _BEGIN[fault.kind](proxy, fault)


def end_at(proxy: Any, fault: FaultSpec) -> None:
    """Removes a fault from one proxy."""
    if fault.kind is FaultKind.CUT:
        proxy.enable()
        return
    for stream in ("upstream", "downstream"):
        if proxy.get_toxic(f"{TOXIC}_{stream}"):
            proxy.destroy_toxic(f"{TOXIC}_{stream}")


def _toxic(
    type_: str, attributes: Callable[[FaultSpec], dict[str, int]], is_both_ways: bool
) -> Callable[[Any, FaultSpec], None]:
    """Makes an injection. ``upstream`` is the direction from the sender; TCP's own replies do not pass Toxiproxy."""

    def begin(proxy: Any, fault: FaultSpec) -> None:
        for stream in ("upstream", "downstream") if is_both_ways else ("upstream",):
            proxy.add_toxic(name=f"{TOXIC}_{stream}", type=type_, stream=stream, attributes=attributes(fault))

    return begin


_BEGIN: Final[dict[FaultKind, Callable[[Any, FaultSpec], None]]] = {
    FaultKind.CUT: lambda proxy, _: proxy.disable(),
    FaultKind.HALF_OPEN: _toxic("timeout", lambda _: {"timeout": 0}, False),
    FaultKind.RESET: _toxic("reset_peer", lambda _: {"timeout": 0}, True),
    FaultKind.DELAY: _toxic("latency", lambda fault: {"latency": fault.latency_ms, "jitter": fault.jitter_ms}, True),
    FaultKind.THROTTLE: _toxic(
        "bandwidth", lambda fault: {"rate": max(1, fault.bytes_per_second // BYTES_PER_KB)}, True
    ),
    FaultKind.SLICE: _toxic(
        "slicer",
        lambda fault: {"average_size": fault.piece_bytes, "size_variation": fault.piece_bytes // 2, "delay": 10},
        True,
    ),
}
