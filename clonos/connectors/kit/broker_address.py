"""Base of the addresses of brokers and servers that travel to the slots, with secrets that nobody sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from clonos.connectors.kit.external_system import ExternalSystem
from clonos.connectors.secrets import Secret, check_text, without
from clonos.connectors.tables.database_text import place_of


class BrokerAddress(ABC):
    """Address of an external system, with its user. ``password`` replaces that of the URL."""

    system: ClassVar[ExternalSystem]
    scheme: ClassVar[str]
    url_option: ClassVar[str] = "url"

    def __init__(self, connector: str, url: str | Secret, password: str | Secret | None) -> None:
        self.connector, self._url, self._password = connector, url, password
        check_text(connector, self.url_option, url)

    @abstractmethod
    def secret_texts(self) -> Iterable[str]:
        """Returns passwords and the like, revealed.

        Raises: SecretMissing, InvalidConnector.
        """

    def parts(self, url: str) -> list[str]:
        """Returns the addresses of which a URL consists."""
        return [url]

    @property
    def place(self) -> str:
        """Hosts, ports and such, without user, password and options, or where the URL is."""
        if isinstance(self._url, Secret):
            return repr(self._url)
        return ",".join(place_of(each) or self.scheme for each in self.parts(self._url))

    def __repr__(self) -> str:
        return self.place

    def library(self) -> Any:
        """Returns the module of the client library.

        Raises: ExtraMissing: it is not installed.
        """
        return self.system.library(self.connector)

    def clean(self, text: str) -> str:
        """Returns a text of the system or of its library without what is secret."""
        return without(text, self.secret_texts())
