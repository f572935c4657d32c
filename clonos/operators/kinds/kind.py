"""Protocols of the kinds of records: what an operator asks of them, so that it serves them all.

The operator has the rules: which time counts, when a span ends, what leaves. A kind has the batch with its keys, and
state by key: Python objects in dicts (``object_kind``), or typed columns in arrays (``column_kind``). No operator asks
which kind it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from clonos.kernels.record_batch import RecordBatch
from clonos.operators.event_time.late_records import LateRecords
from clonos.operators.operator import Operator, Times
from clonos.operators.state.declared_state import StepState
from clonos.operators.state.state_spec import StateSpec

By = str | Callable[[Any], Any] | None
"""What an operator compares of records: a field, what a function returns, or None for the records themselves."""


class KeyedBatch(Protocol):
    """Records of a batch with what is compared of each. Places and instants are as its kind has them."""

    @property
    def times(self) -> Any:
        """Timestamps of the records."""

    def at(self, instant_ns: int) -> Any:
        """Returns the same instant for each record."""

    def emit(self, out: Operator, places: Any) -> None:
        """Passes on the records at these places, in their order."""

    def pass_late(self, late_records: LateRecords, places: Any, times: Any, watermark_ns: int) -> None:
        """Passes the records at these places to those that are late; ``times`` are those of all records."""


BatchT = TypeVar("BatchT", bound=KeyedBatch)
TakenT = TypeVar("TakenT")
GivenT = TypeVar("GivenT", bound=KeyedBatch, contravariant=True)
MadeT = TypeVar("MadeT", covariant=True)


class KeyChoice(Protocol[GivenT]):
    """State that chooses among the records of each key."""

    def choose(self, batch: GivenT) -> Any:
        """Returns the places of the records that are chosen."""


class KeySpans(Protocol[GivenT]):
    """Spans of each key that are open."""

    @property
    def earliest_ns(self) -> int | None:
        """Instant that opened the earliest span."""

    def choose(self, batch: GivenT, instants: Any) -> Any:
        """Returns the places of the records that open a span, and opens them."""

    def end(self, opened_max_ns: int | None) -> None:
        """Forgets the spans that opened up to an instant, or all."""


class LastSpans(Protocol[GivenT]):
    """Spans of each key that are open, each with its last record."""

    @property
    def earliest_ns(self) -> int | None:
        """Instant that opened the earliest span."""

    def openers(self, opened_max_ns: int | None) -> list[int]:
        """Returns the instants up to this one, or all, that opened a span, in order."""

    def take(self, batch: GivenT, instants: Any) -> None:
        """Takes records into their spans. A record in two belongs to that which was opened first."""

    def end(self, opened_max_ns: int | None, out: Operator) -> None:
        """Passes on the last records of the spans that opened up to an instant, or all, and forgets these spans.

        They come by the instants that opened their spans, those of one instant in the order of opening.
        """


class Highest(Protocol[GivenT]):
    """The highest records of each key, highest first; of equal ranks the earlier one. None and nan are no ranks."""

    def pass_lists(self, operator: Operator, batch: GivenT) -> None:
        """Takes records, and passes on the key with its highest ones after each change."""

    def pass_ranks(self, operator: Operator, batch: GivenT, name: str) -> None:
        """Takes records, and passes on those of each key from the first changed rank on, with ranks in a field.

        Keys come in the order of their first change, and the ranks of a key ascend.
        """


class RecordKind(Protocol[MadeT]):
    """Kind of the records of an operator (``kind_step.KindStep``)."""

    @property
    def takes_columns(self) -> bool:
        """Whether records are columns, which a step before should give."""

    def of_rows(self, operator: Operator, rows: list[Any], times: Times) -> MadeT | None:
        """Returns a batch of rows, (key, record) if they have keys; None if no record is left."""

    def of_columns(self, operator: Operator, batch: RecordBatch, key: Any) -> MadeT | None:
        """Returns a batch of columns with the key columns ``key``, None without any; None if no record is left."""


class Kind(RecordKind[BatchT], Protocol[BatchT]):
    """Kind of the records of an operator that chooses among those of each key."""

    @property
    def changes_rows(self) -> bool:
        """Whether user code gets the records."""

    @property
    def key_specs(self) -> tuple[StateSpec, ...]:
        """State of ``firsts`` and of ``lasts`` with timestamps."""

    @property
    def span_specs(self) -> tuple[StateSpec, ...]:
        """State of ``spans``."""

    @property
    def last_span_specs(self) -> tuple[StateSpec, ...]:
        """State of ``last_spans``."""

    @property
    def highest_specs(self) -> tuple[StateSpec, ...]:
        """State of ``highest``."""

    def firsts(self, state: StepState) -> KeyChoice[BatchT]:
        """Returns the state that chooses the first record of each key of all time."""

    def lasts(self, state: StepState, has_times: bool) -> KeyChoice[BatchT]:
        """Returns the state that chooses the last record of each key so far, of a batch: by timestamp and then by
        arrival, without timestamps by arrival."""

    def spans(self, state: StepState, within_ns: int) -> KeySpans[BatchT]:
        """Returns the spans of a step."""

    def last_spans(self, state: StepState, within_ns: int, has_times: bool) -> LastSpans[BatchT]:
        """Returns the spans of a step with their last records, which get timestamps if ``has_times``."""

    def highest(self, state: StepState, by: By, k: int) -> Highest[BatchT]:
        """Returns the ``k`` records of each key with the highest ``by``."""
