"""Parts of sources that follow a table by its versions, as Delta's and Iceberg's changes do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeVar

from xxhash import xxh3_64_intdigest

from clonos.connectors.order_choice import OrderChoice, note_of_order
from clonos.io.system import wall_clock


class HasPath(Protocol):
    """File of a table."""

    @property
    def path(self) -> str:
        """Path, as the table names it."""


FileT = TypeVar("FileT", bound=HasPath)


def files_of_share(files: Sequence[FileT], index: int, count: int) -> list[FileT]:
    """Returns the files that one of ``count`` splits reads, by a hash of their paths."""
    return [file for file in files if xxh3_64_intdigest(file.path.encode()) % count == index]


class TableChanges(OrderChoice):
    """Base of unbounded sources of columns. ``watch_ns``: time between two looks for another version."""

    connector: ClassVar[str]
    is_columnar = True

    def __init__(self, is_bounded: bool, watch_ns: int, ordered: bool | None) -> None:
        self.is_bounded, self.watch_ns, self.ordered = is_bounded, watch_ns, ordered

    def order_note(self, splits: Sequence[bytes], parallelism: int) -> str:
        """See ``connector_contract.OrderedSource``."""
        if len(splits) >= parallelism:
            return ""
        return note_of_order(self.connector, len(splits), parallelism, "deals its files to all")


class Looks:
    """Looks of a reader for another version, at an interval."""

    def __init__(self, interval_ns: int) -> None:
        self._interval_ns, self._last_ns = interval_ns, 0

    def reset(self) -> None:
        """Makes a look due."""
        self._last_ns = 0

    def is_due(self) -> bool:
        """Returns whether the interval has passed since a look; then one is made now."""
        now_ns = wall_clock.wall_ns()
        if 0 <= now_ns - self._last_ns < self._interval_ns:
            return False
        self._last_ns = now_ns
        return True
