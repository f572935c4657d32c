"""Protocols of the kinds of records of a join: what an operator asks of both sides, so that it serves them all.

The operator has the rules: what is late, what waits and until when, what is forgotten, and when results leave. A kind
has the batches with their keys, the state of the sides, and the results of matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.match_rules import AsOfRules
from clonos.operators.operator import InputSide, Scope, Times, TwoInputOperator


class SideBatch(Protocol):
    """Records of one side with their keys. A key that is null, or has a null in it, matches nothing."""

    def __len__(self) -> int: ...

    def earlier(self, instant_ns: int) -> list[int]:
        """Returns the places of the records before an instant."""

    def keyed(self) -> Any:
        """Returns the batch without the records whose keys match nothing."""

    def split(self, places: Sequence[int]) -> tuple[Any, Any]:
        """Returns the batch without the records at some places, and the batch of these."""


BatchT = TypeVar("BatchT", bound=SideBatch)
GivenT = TypeVar("GivenT", bound=SideBatch, contravariant=True)


class Lefts(Protocol[BatchT]):
    """Left records that wait until their versions are known."""

    def add(self, batch: BatchT) -> None:
        """Lets records wait."""

    def take(self, before_ns: int | None) -> Iterator[BatchT]:
        """Yields the records before an instant, or all, by timestamp and arrival, and forgets them."""


class Versions(Protocol[GivenT]):
    """Versions of each key by their timestamps."""

    def add(self, batch: GivenT) -> None:
        """Adds versions, all with keys."""

    def last_before(self, batch: GivenT, instant_ns: int) -> Iterator[tuple[int, Any, int, int]]:
        """Yields place, key and timestamp of the records of a batch up to an instant that have a key, and the timestamp
        of the last version of the key up to that instant; their own timestamp if there is none."""

    def find(self, lefts: GivenT) -> Any:
        """Returns what ``Sides.emit`` takes: the version that each left record meets, or none."""

    def forget(self, earliest_ns: int) -> None:
        """Forgets versions that no left record from an instant on meets. It may keep some of them for a while."""


class Latest(Protocol[GivenT]):
    """Last row of each key."""

    def add(self, batch: GivenT) -> None:
        """Takes rows, all with keys."""

    def find(self, lefts: GivenT) -> Any:
        """Returns what ``Sides.emit`` takes: the row that each left record meets, or none."""


class Sides(Protocol[BatchT]):
    """Both sides of an open join."""

    def of_rows(self, is_left: bool, rows: list[Any], times: Times) -> BatchT:
        """Returns a batch of rows (key, record)."""

    def of_columns(self, is_left: bool, batch: RecordBatch, key: Any, side: InputSide) -> BatchT | None:
        """Returns a batch of columns with the key columns ``key``; None if no record is left."""

    def add_late(self, late: LateBatch, batch: BatchT) -> None:
        """Adds records to those that are late."""

    def lefts(self) -> Lefts[BatchT]:
        """Returns the left records that wait."""

    def versions(self, rules: AsOfRules) -> Versions[BatchT]:
        """Returns the versions on the right side."""

    def latest(self) -> Latest[BatchT]:
        """Returns the last right row of each key."""

    def emit(self, lefts: BatchT, found: Any, is_inner: bool) -> None:
        """Emits left records with what they meet; those that meet nothing too unless ``is_inner``."""


class JoinKind(Protocol[BatchT]):
    """Kind of the records of a join."""

    def sides(self, join: TwoInputOperator, step: str, scope: Scope) -> Sides[BatchT]:
        """Returns the sides of a join that is opened."""
