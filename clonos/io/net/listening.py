"""Listening sockets: ipc in a folder that only the user may enter, or TCP, encrypted by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from socket import AF_INET, AF_INET6, SOCK_DGRAM, gethostbyname, gethostname, socket

import zmq

from clonos.core.model.errors import EnvironmentFault
from clonos.io.net.curve import ZAP_DOMAIN, KeyPair
from clonos.io.net.frames import FRAME_BYTES_MAX

SOCKET_PATH_BYTES_MAX = 100
HANDSHAKE_MS = 2_000
"""Milliseconds that a connection has for its handshake before it is dropped."""

UNREAD_MESSAGES_MAX = 1 << 14
"""Unread messages of one connection before its sender must wait. Credit keeps a correct sender below this limit."""

BACKLOG = 1_024
"""Connections that may wait to be accepted, because all slots of a job connect at once."""

ANY_HOSTS = ("0.0.0.0", "[::]")


@dataclass(frozen=True, slots=True)
class Binding:
    """Listening address: with ``folder`` set, ipc in this folder, which only the user may enter; else TCP.

    ``advertised_host``: address that peers connect to, where it differs from ``host``. If it is empty and ``host`` is a
    wildcard address, it is the address of the machine's own host name. ``ports``: candidates, the first free one is
    taken. ``use_curve``: None encrypts and authenticates every connection except ipc.
    """

    folder: str = ""
    host: str = "127.0.0.1"
    advertised_host: str = ""
    ports: Sequence[int] | None = None
    use_curve: bool | None = None

    @property
    def is_encrypted(self) -> bool:
        """True when connections need keys."""
        return not self.folder if self.use_curve is None else self.use_curve


class BindingRefused(EnvironmentFault):
    """The process cannot listen at the configured address."""

    where: str
    reason: str

    def __str__(self) -> str:
        return (
            f"cannot listen at {self.where}: {self.reason}."
            " Set another data_host= or data_ports=; for a socket file, set TMPDIR to another folder."
        )


def bind_router(
    context: zmq.Context[zmq.Socket[bytes]], binding: Binding, name: str, keys: KeyPair
) -> tuple[zmq.Socket[bytes], str]:
    """Returns a listening socket and the address that peers connect to.

    Raises: BindingRefused when the path is too long, or no address or port is free.
    """
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    router.rcvhwm = UNREAD_MESSAGES_MAX
    router.maxmsgsize = FRAME_BYTES_MAX
    router.backlog = BACKLOG
    router.handshake_ivl = HANDSHAKE_MS
    router.router_mandatory = True  # a send to a closed connection fails, which tells that it is closed
    router.ipv6 = ":" in binding.host
    if keys.public:
        router.zap_domain = ZAP_DOMAIN
        router.curve_server = True
        router.curve_secretkey = keys.secret
        router.curve_publickey = keys.public
    try:
        return router, _bind_ipc(router, binding, name) if binding.folder else _bind_tcp(router, binding)
    except BindingRefused:
        router.close(0)
        raise
    except zmq.ZMQError as error:
        router.close(0)
        raise BindingRefused(binding.folder or binding.host, str(error)) from None


def towards(binding: Binding, address: str) -> Binding:
    """Returns the binding with the local address advertised from which this machine reaches ``address``
    (``tcp://...``).

    It changes only a binding to a wildcard address without ``advertised_host``.
    """
    if binding.folder or binding.advertised_host or binding.host not in ("0.0.0.0", "::"):
        return binding
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    family = AF_INET6 if host.startswith("[") else AF_INET
    with socket(family, SOCK_DGRAM) as probe:
        probe.connect((host.strip("[]"), int(port)))  # sends nothing
        own = probe.getsockname()[0]
    return replace(binding, advertised_host=f"[{own}]" if ":" in own else own)


def _bind_ipc(router: zmq.Socket[bytes], binding: Binding, name: str) -> str:
    path = Path(binding.folder).resolve() / name
    if len(str(path).encode()) > SOCKET_PATH_BYTES_MAX:
        raise BindingRefused(str(path), f"the path of a socket may have at most {SOCKET_PATH_BYTES_MAX} bytes")
    address = f"ipc://{path}"
    router.bind(address)
    return address


def _bind_tcp(router: zmq.Socket[bytes], binding: Binding) -> str:
    host = f"[{binding.host}]" if ":" in binding.host else binding.host
    advertised = binding.advertised_host or (gethostbyname(gethostname()) if host in ANY_HOSTS else host)
    if binding.ports is None:
        return f"tcp://{advertised}:{router.bind_to_random_port(f'tcp://{host}', max_tries=1_000)}"
    for port in binding.ports:
        try:
            router.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
        else:
            return f"tcp://{advertised}:{port}"
    raise BindingRefused(host, f"none of the {len(binding.ports)} ports is free")
