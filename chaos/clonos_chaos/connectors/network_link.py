"""Link to an external system whose network fails on request: a proxy of Toxiproxy before a server."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from clonos_chaos.real.toxics import Toxiproxy, begin_at, end_at
from clonos_chaos.real.toxiproxy_server import find_server
from clonos_chaos.scenario.scenario import FaultKind, FaultSpec, FaultTrigger

LASTS_S: Final = 2.0
_NOW: Final = FaultTrigger(seconds=0.0)
OUTAGES: Final[dict[str, FaultSpec]] = {
    "cut": FaultSpec(FaultKind.CUT, _NOW),
    "reset": FaultSpec(FaultKind.RESET, _NOW),
    "half-open": FaultSpec(FaultKind.HALF_OPEN, _NOW),
    "slow": FaultSpec(FaultKind.DELAY, _NOW, latency_ms=300, jitter_ms=100),
    "sliced": FaultSpec(FaultKind.SLICE, _NOW, piece_bytes=64),
}
"""Network faults by name."""


class NetworkLink:
    """Address of a server behind a proxy.

    ``outages`` are the faults that ``check_sink`` and ``check_source`` take::

        with NetworkLink("127.0.0.1:5432") as link:
            check_sink(lambda place: table(link.address, place), read, outages=link.outages())
    """

    def __init__(self, upstream: str, listen: str = "127.0.0.1:0") -> None:
        """Starts Toxiproxy with a proxy to ``upstream``, a "host:port"; ``listen`` is its own address, if it matters.

        Raises: EnvironmentFault: there is no Toxiproxy, or it does not start.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="clonos-link-")
        self._server = Toxiproxy(find_server(), Path(self._folder.name) / "toxiproxy.log")
        self._proxy: Any = self._server.link("link", upstream, listen)
        self.address = str(self._proxy.listen)

    def outages(self, lasts: float = LASTS_S) -> dict[str, Callable[[], None]]:
        """Returns functions by name, each of which lets the network fail for ``lasts`` seconds.

        "cut": connections end, and new ones are refused. "reset": each connection is reset. "half-open": what the
        connector sends does not arrive. "slow": 300 ms more each way. "sliced": pieces of 64 bytes.
        """
        return {name: partial(self._fail, fault, lasts) for name, fault in OUTAGES.items()}

    def _fail(self, fault: FaultSpec, lasts: float) -> None:
        begin_at(self._proxy, fault)
        try:
            time.sleep(lasts)
        finally:
            end_at(self._proxy, fault)

    def close(self) -> None:
        """Ends the proxy."""
        self._server.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
