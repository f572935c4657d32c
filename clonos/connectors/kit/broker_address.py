"""Base of the addresses of brokers and servers that travel to the slots, with secrets that nobody sees."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

from clonos.connectors.kit.external_system import ExternalSystem
from clonos.connectors.secrets import Secret, check_text, without
from clonos.connectors.tables.database_text import place_of
from clonos.operators.lineage import Dataset

PATH: Final = re.compile(r"[^/?#]*//[^/?#]*/([^?#]*)")
"""URL, and what it has after the address."""


class BrokerAddress(ABC):
    """Address of an external system, with its user. ``password`` replaces that of the URL. ``ports``: those of the
    schemes of a URL that names none.
    """

    system: ClassVar[ExternalSystem]
    scheme: ClassVar[str]
    ports: ClassVar[Mapping[str, int]]
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

    @property
    def namespace(self) -> str:
        """Name of the system in records of lineage: its first address, the same with TLS and without. Of a URL that is
        a secret it has the description only."""
        if isinstance(self._url, Secret):
            return f"{self.scheme}{self.place}"
        try:
            address = urlsplit(self.parts(self._url)[0])
            port = address.port or self.ports[address.scheme]
        except ValueError:  # the connection will say that the URL cannot be parsed
            return self.place
        host = address.hostname or "localhost"
        return f"{self.scheme}{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def path(self) -> str:
        """Part of the URL after the address, such as a virtual host; "" without one or if the URL is a secret."""
        found = None if isinstance(self._url, Secret) else PATH.match(self.parts(self._url)[0])
        return "" if found is None else unquote(found[1])

    def datasets(self, names: Iterable[object]) -> list[Dataset]:
        """Returns the names of parts of the system, such as topics, for records of lineage. A function of the row is
        none."""
        return [Dataset(self.namespace, self.dataset_name(each)) for each in names if isinstance(each, str)]

    def dataset_name(self, name: str) -> str:
        """Returns the name of a part within its namespace."""
        return name

    def library(self) -> Any:
        """Returns the module of the client library.

        Raises: ExtraMissing: it is not installed.
        """
        return self.system.library(self.connector)

    def clean(self, text: str) -> str:
        """Returns a text of the system or of its library without what is secret."""
        return without(text, self.secret_texts())
