"""In-memory source of given values, for tests, and a sink that discards its rows, for measurements."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from clonos.connectors.connector_errors import InvalidConnector, SplitMalformed
from clonos.connectors.order_choice import OrderChoice, note_of_order
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.values.copying import copied_rows
from clonos.core.wire.decoding import DECODE_ERRORS
from clonos.core.wire.log_delta import Count
from clonos.kernels.record_batch import RecordBatch
from clonos.operators.connector_contract import PendingInput, WriterContext

logger = logging.getLogger("clonos.run")

MARK_BYTES = 8

LONG_LIST: Final = 1_024
"""Number of values from which on a job says that one task reads them."""

UNSIZED_MAX: Final = 1_000_000
"""Values that ``values`` takes from an iterator without a length, which may have no end."""

WARN_AFTER_S: Final = 5
ENDLESS_ADVICE: Final = (
    "For records without an end write a Source or a PushSource (docs/connectors.md), or end them, for example by"
    " itertools.islice(records, 1000)."
)
AnyValue = TypeVar("AnyValue")


class _Share(msgspec.Struct, frozen=True, array_like=True):
    """Split: every ``of``-th of ``total`` values, starting with number ``first``."""

    format: int
    first: Count
    of: Annotated[int, msgspec.Meta(ge=1, le=(1 << 62) - 1)]
    total: Count


_share_decoder = msgspec.msgpack.Decoder(_Share)


class ValueList(OrderChoice, Generic[AnyValue]):
    """Source of a list that travels with the plan. Split i of n has the values i, i + n, i + 2n, ..."""

    def __init__(
        self, records: Iterable[AnyValue], *, batch: int | None, splits: int | None, ordered: bool | None = None
    ) -> None:
        for name, number in (("batch", batch), ("splits", splits)):
            if number is not None and number < 1:
                raise InvalidConnector("values", f"{name} is {number}", "Give at least 1, or leave it out.")
        if ordered and splits is not None and splits > 1:
            raise InvalidConnector("values", "ordered=True reads the list as one split", "Leave out splits=.")
        self.records = read_all(records)
        self.batch = batch
        self.split_count = splits
        self.ordered = False if ordered is None and splits is not None else ordered

    @property
    def has_fields(self) -> bool:
        """Returns whether the values have fields by name, one of which may be a time."""
        return bool(self.records) and isinstance(self.records[0], Mapping)

    def __repr__(self) -> str:
        return f"values(<{len(self.records):,} records>)"

    def order_note(self, splits: Sequence[bytes], parallelism: int) -> str:
        """See ``connector_contract.OrderedSource``. A list of at most 1,024 values is read at once anyway."""
        if parallelism == 1 or len(splits) > 1 or len(self.records) <= LONG_LIST:
            return ""
        return note_of_order("values", 1, parallelism, "deals it to all, in any order")

    def splits(self, parallelism: int) -> list[bytes]:
        """Returns the list as one split, or ``splits`` shares of it, by default one per task."""
        count = 1 if self.ordered else self.split_count or parallelism
        return [msgspec.msgpack.encode(_Share(1, first, count, len(self.records))) for first in range(count)]

    def pending(self, split: bytes, mark: bytes | None) -> PendingInput:
        """See ``connector_contract.PendingSource``."""
        share = _decode_share(split)
        return PendingInput(len(range(share.first, share.total, share.of)) - int.from_bytes(mark or b"", "big"))

    def reader(self) -> ValueReader[AnyValue]:
        """Creates a reader."""
        return ValueReader(self.records, self.batch)


def read_all(
    records: Iterable[AnyValue], maximum: int = UNSIZED_MAX, now_s: Callable[[], float] = time.monotonic
) -> list[AnyValue]:
    """Returns all values; warns once when an iterator takes longer than ``WARN_AFTER_S``.

    Raises: InvalidConnector: an iterator without a length has more than ``maximum`` values, or nothing can be iterated.
    """
    if (advice := _advice_about(records)) is not None:
        raise InvalidConnector("values", f"the values are a {type(records).__name__}", advice)
    if isinstance(records, Sized) and isinstance(records, Iterable):
        return list(records)
    if not isinstance(records, Iterable):
        raise InvalidConnector(
            "values", f"{records!r:.80} is a {type(records).__name__}, not several values", "Give a list."
        )
    found: list[AnyValue] = []
    warn_at_s = now_s() + WARN_AFTER_S
    for record in records:
        found.append(record)
        if len(found) > maximum:
            raise InvalidConnector(
                "values",
                f"{records!r:.80} has more than {maximum:,} values and perhaps no end; they are read to the end before"
                " the job starts",
                f"{ENDLESS_ADVICE} A list may be longer.",
            )
        if now_s() >= warn_at_s:
            logger.warning(
                "values() has read %d values of %.80r in %d s and waits for the last one: the job starts then. %s",
                len(found),
                records,
                WARN_AFTER_S,
                ENDLESS_ADVICE,
            )
            warn_at_s = float("inf")
    return found


def _advice_about(records: object) -> str | None:
    """Returns what to write instead of a collection whose items are not what a user means; None for any other."""
    if isinstance(records, (str, bytes)):
        return "Each character would be a record. Give a list of texts."
    if isinstance(records, Mapping):
        return "Only its keys would be records. Give list(values.items()), or [values] for one record."
    if hasattr(records, "__arrow_c_stream__") or hasattr(records, "iterrows"):
        return "Give its rows: frame.to_dict('records') of pandas, .to_dicts() of Polars, .to_pylist() of Arrow."
    return None


class ValueReader(Generic[AnyValue]):
    """Reader of one share of the list. A mark is the number of values of the share that were read."""

    def __init__(self, records: list[AnyValue], batch: int | None) -> None:
        self._records = records
        self._batch = batch
        self._share: list[AnyValue] = []
        self._next = 0

    def open(self, split: bytes, mark: bytes | None) -> None:
        """Opens a share at a mark.

        Raises: InvalidConnector: the list has another length than at the first start. SplitMalformed: the store's split
        or mark cannot be used.
        """
        share = _decode_share(split)
        if share.total != len(self._records):
            raise InvalidConnector(
                "values",
                f"the job was first started with {share.total} values and now has {len(self._records)}",
                "Resume with the same values, or start afresh with --overwrite.",
            )
        if mark is not None and len(mark) != MARK_BYTES:
            raise SplitMalformed("position in a list of values", mark, f"it has {len(mark)} bytes")
        self._share = self._records[share.first :: share.of]
        self._next = 0 if mark is None else int.from_bytes(mark, "big")

    def read(self, records_max: int) -> list[AnyValue] | None:
        """Returns the next values, at most ``batch`` of them."""
        first = self._next
        if first >= len(self._share):
            return None
        self._next = min(first + min(records_max, self._batch or records_max), len(self._share))
        return copied_rows(self._share[first : self._next])  # a step may change a record that is read again later

    def pending(self) -> PendingInput:
        """See ``connector_contract.PendingReader``."""
        return PendingInput(max(0, len(self._share) - self._next))

    def mark(self) -> bytes:
        """Returns the number of values read."""
        return self._next.to_bytes(MARK_BYTES, "big")

    def close(self) -> None:
        """Does nothing: no resource is open."""


def _decode_share(split: bytes) -> _Share:
    try:
        return _share_decoder.decode(split)
    except DECODE_ERRORS as error:
        raise SplitMalformed("share of a list of values", split, str(error)) from None


@explains_calls
def values(
    records: Iterable[AnyValue],
    *,
    batch: int | None = None,
    splits: int | None = None,
    ordered: bool | None = None,
) -> ValueList[AnyValue]:
    """Source of the given values, which travel with the job.

    Args:
        records: the values; each must be of a type that streams can carry. They are read to the end at once: an
            iterator without a length may have at most 1,000,000.
        batch: most records of one read; by default as many as fit a step. With ``batch=1`` and timestamps a watermark
            may come after each record, as tests with late records need.
        splits: number of splits among which the values are dealt; by default as ``ordered`` says.
        ordered: True for one split, False for one per task. By default the values are one split if a step that follows
            depends on their order.

    Raises:
        InvalidConnector: ``batch`` or ``splits`` is below 1, ``ordered`` contradicts ``splits``, or the values have no
            end.
    """
    return ValueList(records, batch=batch, splits=splits, ordered=ordered)


class Blackhole:
    """Sink that discards its rows."""

    connector = "blackhole()"
    flush_refused = "it shows its rows nowhere"

    def __repr__(self) -> str:
        return "blackhole()"

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Does nothing."""

    def writer(self) -> BlackholeWriter:
        """Creates a writer."""
        return BlackholeWriter()

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Does nothing."""


class BlackholeWriter:
    """Writer that discards its rows."""

    def open(self, context: WriterContext) -> None:
        """Does nothing."""

    def write(self, rows: list[Any]) -> None:
        """Discards the rows."""

    def write_columns(self, batch: RecordBatch) -> None:
        """Discards the batch."""

    def prepare(self, checkpoint: int) -> bytes | None:
        """Returns None: nothing was written."""
        return None

    def close(self) -> None:
        """Does nothing: no resource is open."""


@explains_calls
def blackhole() -> Blackhole:
    """Sink that discards its rows, to measure a job without its output."""
    return Blackhole()
