"""Names of what a connector reads or writes, for records of lineage: those of OpenLineage, so that other tools mean the
same."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?]*)")


class Dataset(NamedTuple):
    """Data set. ``namespace``: the system that has it, such as ``kafka://host:9092``. ``name``: within the system."""

    namespace: str
    name: str


@runtime_checkable
class NamingConnector(Protocol):
    """Source or sink that names its data sets."""

    def datasets(self) -> Sequence[Dataset]:
        """Returns what it reads or writes, in the driver, without a look at the external system."""


def datasets_of(connector: object) -> list[Dataset]:
    """Returns the data sets of a source or a sink; none if it does not name them."""
    return list(connector.datasets()) if isinstance(connector, NamingConnector) else []


def dataset_at(place: str) -> Dataset:
    """Returns the data set at a path, or at a URL, whose options and user are left out."""
    found = URL.match(place)
    scheme = "file" if found is None else found["scheme"].lower()
    if found is None or scheme == "file":
        return Dataset("file", os.path.abspath(os.path.expanduser(place if found is None else found["path"])))
    authority = found["authority"].rpartition("@")[2]
    return Dataset(f"{scheme}://{authority}", found["path"].strip("/") or "/")


def schema_of(connector: Any) -> list[tuple[str, str]]:
    """Returns names and types of the columns that a source or a sink was given; nothing if it was given none."""
    schema: Any = getattr(connector, "schema", None)
    if hasattr(schema, "names") and hasattr(schema, "types"):  # of Arrow
        return [(name, str(kind)) for name, kind in zip(schema.names, schema.types, strict=True)]
    types = getattr(connector, "types", None)
    return [(name, str(kind)) for name, kind in types.items()] if isinstance(types, dict) else []
