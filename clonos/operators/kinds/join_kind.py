"""Protocols of the kinds of records of a join: what an operator asks of both sides, so that it serves them all.

The operator has the rules: what is late, what waits and until when, what is forgotten, and when results leave. A kind
has the batches with their keys, the state of the sides, and the results of matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.late_batch import LateBatch
from clonos.operators.joins.match_rules import AsOfRules, How, MatchRule
from clonos.operators.operator import InputSide, Scope, Times, TwoInputOperator
from clonos.operators.state.state_spec import StateSpec


class SideBatch(Protocol):
    """Records of one side with their keys. A key that is null, or has a null in it, matches nothing."""

    def __len__(self) -> int: ...

    def earlier(self, instant_ns: int) -> list[int]:
        """Returns the places of the records before an instant."""

    def parted(self, needed_ns: int | None) -> tuple[Any, Any | None]:
        """Returns the records with keys from an instant on, and the batch of the others; None if there are none."""

    def by_the_clock(self, now_ns: int) -> Any:
        """Returns the batch with an instant as the timestamp of each record."""

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


class Buffers(Protocol[GivenT]):
    """Records of both sides that may still match."""

    @property
    def first_end_ns(self) -> int | None:
        """Last timestamp that may match the record that ends first."""

    def pair(self, is_left: bool, batch: GivenT, needed_ns: int | None) -> None:
        """Emits the pairs of records with those of the other side, and buffers the records from an instant on.

        Others, and those whose keys match nothing, leave if they have no match and the join keeps their side. Pairs
        come by the order of the batch, then by timestamp and arrival of the other side.
        """

    def parted(self, batch: GivenT) -> tuple[Any, Any]:
        """Returns the left records that match a right one, and the others."""

    def first_of_windows(self, batch: GivenT) -> Any:
        """Returns the right records that are the first of their key in their window: the others decide nothing more."""

    def decide(self, batch: GivenT, emits: bool) -> None:
        """Removes the left records that match one of a batch of the right side; emits them if ``emits``."""

    def add(self, is_left: bool, batch: GivenT) -> None:
        """Buffers records with keys."""

    def pass_on(self, batch: GivenT) -> None:
        """Emits left records alone."""

    def forget(self, needed_ns: tuple[int, int] | None, reached_ns: int | None) -> None:
        """Forgets the records that nothing from an instant on matches (None: all): those of each side before another
        instant. Emits those without a match that the join keeps.

        They leave in the order of the last timestamp that could have matched, then of arrival. It may keep some of the
        others for a while.
        """


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

    def buffers(self, rule: MatchRule, how: How, has_times: bool) -> Buffers[BatchT]:
        """Returns the buffers of both sides. ``has_times``: results have timestamps."""

    def emit(self, lefts: BatchT, found: Any, is_inner: bool) -> None:
        """Emits left records with what they meet; those that meet nothing too unless ``is_inner``."""


class JoinKind(Protocol[BatchT]):
    """Kind of the records of a join."""

    @property
    def as_of_specs(self) -> tuple[StateSpec, ...]:
        """State of ``Sides.lefts`` and ``Sides.versions``."""

    @property
    def latest_specs(self) -> tuple[StateSpec, ...]:
        """State of ``Sides.latest``."""

    def buffer_specs(self, how: How) -> tuple[StateSpec, ...]:
        """Returns the declarations of the state of ``Sides.buffers``."""

    def sides(self, join: TwoInputOperator, step: str, scope: Scope) -> Sides[BatchT]:
        """Returns the sides of a join that is opened."""
