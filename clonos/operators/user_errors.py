"""Exceptions of user code: they fail the task with the step and the record, or route the record to the error output.

The description of an error is the same in every incarnation of a task. Therefore it has no memory address and no source
line, which may be missing on another host. Errors of clonos itself are not routed, except those that a recorded call to
an external system raised, because the record did not cause them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from clonos.core.model.code_location import FRAMES_MAX, user_frames_of
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.ports.operator_chain import Collector, FailedAt, StepFailed
from clonos.core.ports.step_code import StepCode
from clonos.core.values import ValueBeyondLimit, ValueUnsupported, encode_value, register
from clonos.operators.connector_contract import MalformedRecord, PartlyMalformed
from clonos.operators.row_errors import RecordError, field_missing

RECORD_CHARACTERS_MAX: Final = 500

RAISED: Final = (Exception, SystemExit, KeyboardInterrupt)
"""Exceptions that user code may raise; ``sys.exit()`` in it is an error and does not end the process."""

MISSING: Final = (KeyError, TypeError, IndexError, AttributeError)
"""Exceptions by which records say that they have no such field."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")


@register
class RoutedError(NamedTuple):
    """Record whose processing raised, as the error output of the job gets it.

    ``step`` is the name of the step, ``error`` the type and text of the exception, ``traceback`` its
    frames of user code. ``record`` is the input of the step, or its repr if it cannot be encoded; the values or the
    accumulator of a window if its result raised; None if a timer raised.
    """

    step: str
    record: Any
    error: str
    traceback: str


def as_text(routed: RoutedError) -> RoutedError:
    """Returns the error with its record as a ``repr``, in characters that every format holds: for an output that
    refuses it as it is."""
    texts = (repr(routed.record), routed.error, routed.traceback)
    return RoutedError(routed.step, *map(_printable, texts))


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


class Guard(StepCode):
    """Runner of user code over the batches of one step."""

    __slots__ = ("_is_aligned", "_collector", "_port", "fields")

    def __init__(self, step: str, is_aligned: bool, collector: Collector, port: int | None) -> None:
        """Creates the guard of a step.

        ``is_aligned``: record i of the step's input comes from record i of the chain's. ``port``: the error output, if
        any.
        """
        super().__init__(step)
        self._is_aligned = is_aligned
        self._collector = collector
        self._port = port
        self.fields: tuple[str, ...] = ()  # those that the step looks up in each record, if it was given names

    @property
    def routes(self) -> bool:
        """Returns whether records that raise go to an error output; otherwise they fail the task."""
        return self._port is not None

    def run(
        self, consume: Callable[[Iterator[Any]], None], rows: list[Any], pairs: Sequence[Any] | None = None
    ) -> list[int]:
        """Passes an iterator of all rows to ``consume``; after a record that raised, calls it again with the rest.

        ``pairs`` are (key, record) for each row, if the rows are not the records. Returns the indexes of the routed
        rows.

        Raises: StepFailed: a record raised and there is no error output.
        """
        records: Any = iter(rows)
        failed: list[int] = []
        while True:
            try:
                consume(records)
                return failed
            except RAISED as error:  # user code may raise anything
                index = len(rows) - records.__length_hint__() - 1
                self.caught(error, rows[index] if pairs is None else pairs[index][1], index)
                failed.append(index)

    def each(
        self, function: Callable[[Any], Any], rows: list[Any], pairs: Sequence[Any] | None = None
    ) -> tuple[list[Any], list[int]]:
        """Returns the results of ``function`` for the rows that did not raise, and the indexes of the routed rows."""
        results: list[Any] = []

        # No map() here: it would take a StopIteration of user code for the end of the rows.
        def at_once(records: Iterator[Any]) -> None:
            results[:] = [function(record) for record in records]

        def one_by_one(records: Iterator[Any]) -> None:
            append = results.append
            for record in records:
                append(function(record))

        failed = self.run(one_by_one if self.routes else at_once, rows, pairs)
        return results, failed

    def caught(self, error: BaseException, record: object, index: int | None = None) -> None:
        """Routes a record whose processing raised, or fails the task. ``index`` is its position in the batch.

        Raises: StepFailed: there is no error output, or the error is one of clonos itself.
        """
        assert not isinstance(error, StepFailed), "results are passed on outside of guarded code"
        missing = next((field for field in self.fields if lacks(record, field)), None)
        if missing is not None:
            self._route_or_fail(field_missing(missing, record), record, index, True)
        else:
            self._route_or_fail(error, record, index, _is_routable(error))

    def decoded(self, rows: PartlyMalformed) -> list[Any]:
        """Returns the rows of a source without malformed ones, which go to the error output.

        Raises: StepFailed: there is no error output.
        """
        for index, row in enumerate(rows):
            if type(row) is MalformedRecord:
                self._route_or_fail(row.error, row.record, index, True)
        return [row for row in rows if type(row) is not MalformedRecord]

    def refused(self, error: Exception, record: object, index: int | None) -> None:
        """Routes a record that a sink refused to write, that has no valid key, or whose result does not fit.

        Raises: StepFailed: there is no error output.
        """
        self._route_or_fail(error, record, index, True)

    def _route_or_fail(self, error: BaseException, record: object, index: int | None, is_routable: bool) -> None:
        if self._port is not None and is_routable:
            routed = RoutedError(self.step, _encodable(record), _error_text(error), _frames(error))
            if self._collector.routed_error(f"{self.step}: {routed.error}".encode("utf-8", "backslashreplace")):
                self._collector.rows(self._port, [routed])
                return
        chain_index = index if self._is_aligned else None
        raise StepFailed(FailedAt(self.step, chain_index, shortened(record))) from error

    def failed(self) -> StepFailed:
        """Creates the exception to raise for an error of a connector, which does not know its step."""
        return StepFailed(FailedAt(self.step, None, ""))


def shortened(record: object) -> str:
    """Formats a record, the same in every process, with at most 500 characters."""
    try:
        text = repr(record)
    except Exception as error:  # noqa: BLE001  a user's __repr__ may raise anything
        text = f"<{type(record).__qualname__}, whose repr raised {type(error).__name__}>"
    return _cleaned(text)


def _is_routable(error: BaseException) -> bool:
    return isinstance(error, (EnvironmentFault, RecordError)) or not isinstance(error, ClonosError)


def lacks(record: Any, field: str) -> bool:
    """Returns whether a record has no item or attribute of this name."""
    if isinstance(record, tuple) or not hasattr(type(record), "__getitem__"):
        return not hasattr(record, field)
    try:
        record[field]
    except MISSING:
        return True
    return False


def _encodable(record: object) -> object:
    try:
        encode_value((record,))  # it is a field of the error
    except (ValueUnsupported, ValueBeyondLimit):
        return shortened(record)
    return record


def _error_text(error: BaseException) -> str:
    try:
        text = error.set_aside_text() if isinstance(error, RecordError) else str(error)
        return _cleaned(f"{type(error).__qualname__}: {text}")
    except Exception:  # noqa: BLE001  a user's __str__ may raise anything
        return type(error).__qualname__


def _frames(error: BaseException) -> str:
    """Formats the frames of user code that an exception passed, innermost last."""
    return "\n".join(frame.place for frame in user_frames_of(error)[-FRAMES_MAX:])


def _cleaned(text: str) -> str:
    text = _ADDRESS.sub("0x...", text.encode("utf-8", "backslashreplace").decode())
    if len(text) <= RECORD_CHARACTERS_MAX:
        return text
    return f"{text[:RECORD_CHARACTERS_MAX]}... ({len(text)} characters)"
