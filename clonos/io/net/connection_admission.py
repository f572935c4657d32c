"""Admission of connections to a port: limits of their number, and deadlines for what clients owe.

A connection waits while its client has to act: to send the head of a request, or to read an answer. At a limit the
connection that has waited longest is ended for a new one, so silent clients keep nobody out. What a client sends must
come in time: a head whole before a deadline, a body not slower than a pace.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Key = TypeVar("Key", bound=Hashable)

IPV6_SITE_BITS: Final = 64
"""Bits of an IPv6 address that a client does not choose itself."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of one port. ``trusted``: networks of proxies, which may have all connections for themselves."""

    connections_max: int
    address_connections_max: int
    head_s: float = 10.0
    """Seconds from the beginning of a connection, or from its last answer, to the whole head of a request."""
    body_s: float = 30.0
    """Seconds in which a body may come as slowly as it likes."""
    body_bytes_per_s: int = 16 << 10
    """Bytes of a body that give it one second more."""
    answer_s: float = 60.0
    """Seconds for which a client may read nothing of an answer."""
    trusted: Collection[Network] = ()


class Owed(Enum):
    """Duty of a client, for which its connection waits."""

    HEAD = "the head of a request"
    BODY = "the body of a request"
    READING = "the reading of an answer"
    NOTHING = "the server is to act"


WAITING: Final = (Owed.HEAD, Owed.READING)
"""What a client owes that has shown no right to be served, or takes no answer."""


@dataclass(slots=True)
class _Connection:
    site: str
    owed: Owed
    since_s: float
    body_bytes: int = 0


class Admission(Generic[Key]):
    """Open connections of a port, by keys of the caller. One thread at a time may use it."""

    def __init__(self, limits: AdmissionLimits, now_s: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._now_s = now_s
        self._connections: dict[Key, _Connection] = {}
        self._count_of_site: Counter[str] = Counter()

    def enter(self, key: Key, address: str) -> Key | None:
        """Adds a connection. Returns the connection that has to be ended for it, which does not count any more: that
        which has waited longest, or the new one itself if none waits; None if there is room. ``address``: of the
        client; "" on a Unix socket."""
        site = self._site_of(address)
        ended: Key | None = None
        if site and self._count_of_site[site] >= self.limits.address_connections_max:
            ended = self._longest_waiting(site, key)
        elif len(self._connections) >= self.limits.connections_max:
            ended = self._longest_waiting(None, key)
        if ended is not None:
            self.leave(ended)
        if ended != key:
            self._connections[key] = _Connection(site, Owed.HEAD, self._now_s())
            self._count_of_site[site] += 1
        return ended

    def leave(self, key: Key) -> None:
        """Forgets a connection. An unknown one changes nothing."""
        found = self._connections.pop(key, None)
        if found is not None:
            self._count_of_site[found.site] -= 1
            if not self._count_of_site[found.site]:
                del self._count_of_site[found.site]

    def owes(self, key: Key, owed: Owed, body_bytes: int = 0) -> None:
        """Notes what a connection waits for now. ``body_bytes``: of the body, that have just come."""
        found = self._connections.get(key)
        if found is None:
            return
        if found.owed is not owed:
            found.owed, found.since_s, found.body_bytes = owed, self._now_s(), 0
        found.body_bytes += body_bytes

    def overdue(self) -> list[Key]:
        """Returns the connections whose client is too late. They do not count any more, and have to be ended."""
        now_s = self._now_s()
        found = [key for key, each in self._connections.items() if now_s - each.since_s > self._allowed_s(each)]
        for key in found:
            self.leave(key)
        return found

    def _allowed_s(self, connection: _Connection) -> float:
        limits = self.limits
        match connection.owed:
            case Owed.HEAD:
                return limits.head_s
            case Owed.BODY:
                return limits.body_s + connection.body_bytes / limits.body_bytes_per_s
            case Owed.READING:
                return limits.answer_s
            case Owed.NOTHING:
                return float("inf")

    def _longest_waiting(self, site: str | None, otherwise: Key) -> Key:
        waiting = [
            (each.since_s, number, key)
            for number, (key, each) in enumerate(self._connections.items())
            if each.owed in WAITING and site in (None, each.site)
        ]
        return min(waiting)[2] if waiting else otherwise

    def _site_of(self, address: str) -> str:
        """Returns what an address is counted by; "" if it has no limit of its own."""
        found = address_of(address)
        if found is None or any(found in each for each in self.limits.trusted):
            return ""
        return site_of(address)


def address_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Returns the address of a client as IPv4 if it is one; None on a Unix socket."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def site_of(address: str) -> str:
    """Returns the text that the addresses of one client share: of IPv4 the address, of IPv6 its first half."""
    found = address_of(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((found, IPV6_SITE_BITS), strict=False))
    return address if found is None else str(found)
