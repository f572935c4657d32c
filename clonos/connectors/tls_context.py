"""TLS of connectors whose client libraries take a context of ``ssl``: whom they trust, and what they show."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from clonos.connectors.connector_errors import InvalidConnector

PemFile: TypeAlias = str | os.PathLike[str]

TLS_WORDS: Final = ("certificate", "unknown ca", "ssl alert", "wrong version number", "does not offer tls")
"""Words of errors about TLS that no retry changes."""


@dataclass(frozen=True)
class Trust:
    """Files in PEM that every process of the job has.

    ``ca``: certificates of the authorities to trust; None for those of the system. ``certificate``: certificate and key
    of the client; None for none.
    """

    connector: str
    ca: PemFile | None = None
    certificate: PemFile | None = None

    def __post_init__(self) -> None:
        given: tuple[tuple[str, Any], ...] = (("ca", self.ca), ("certificate", self.certificate))
        for option, value in given:
            if value is not None and not (isinstance(value, (str, os.PathLike)) and os.fspath(value)):
                raise InvalidConnector(self.connector, f"{option} is {value!r:.80}", "Give the path of a file in PEM.")

    def check_url(self, is_encrypted: bool, scheme: str) -> None:
        """Raises: InvalidConnector: a file is given, but the connection will not be encrypted."""
        if not is_encrypted and (self.ca is not None or self.certificate is not None):
            option = "certificate" if self.ca is None else "ca"
            raise InvalidConnector(self.connector, f"{option}= is given, but the url is not for TLS", f"Give {scheme}.")

    def context(self) -> TlsContext:
        """Returns a context that checks the certificate and the name of the server.

        Raises: InvalidConnector: a file is not there, or is not in PEM.
        """
        context = TlsContext(ssl.PROTOCOL_TLS_CLIENT)
        option, path = "ca", self.ca
        try:
            if self.ca is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(self.ca)
            option, path = "certificate", self.certificate
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, password=_no_password)
        except (OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            problem = f"{option}={os.fspath(path or '')!r} cannot be used: {reason}"
        else:
            return context
        advice = "Give a file in PEM that is on each machine; that of certificate= has the key too, without a password."
        raise InvalidConnector(self.connector, problem, advice)


class TlsContext(ssl.SSLContext):
    """Context that knows the connection for which it was used last."""

    _last: ssl.SSLObject | None = None

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """See ``ssl.SSLContext``."""
        self._last = super().wrap_bio(*arguments, **options)
        return self._last

    def take_encrypted(self) -> bool:
        """Returns whether a connection was encrypted since the last call."""
        last, self._last = self._last, None
        return last is not None and last.version() is not None


def _no_password() -> str:
    raise ValueError("its key has a password")


def is_of_tls(error: object) -> bool:
    """Returns whether an error, or its text, is about certificates or TLS, and no retry changes it."""
    text = str(error).lower().replace("_", " ")
    return any(words in text for words in TLS_WORDS)


def tls_advice(reason: str) -> str:
    """Returns what to do about an error of TLS, "" for any other error."""
    if not is_of_tls(reason):
        return ""
    return "Correct ca=, certificate= or the address: the certificate of the server must name it."
