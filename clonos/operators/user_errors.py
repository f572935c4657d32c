"""Where user code raised: the step and the record, and whether the task fails or the record goes to the error output.

Rules: what is said of an error is the same in every life of a task, so texts name no address and no line of source
text (a file may be missing on another host). Errors of the house are never routed, but for those that a recorded call
of the outside raised: they are no fault of the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple

from clonos.core.model.code_location import place_of
from clonos.core.model.errors import ClonosError, EnvironmentFault
from clonos.core.ports.operator_chain import Collector, FailedAt, StepFailed
from clonos.core.values import ValueBeyondLimit, ValueUnsupported, encode_value, register

RECORD_CHARACTERS_MAX: Final = 500
FRAMES_MAX: Final = 20

RAISED: Final = (Exception, SystemExit, KeyboardInterrupt)
"""What user code may raise: ``sys.exit()`` in it is an error like others, and ends no process."""

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")


@register
class RoutedError(NamedTuple):
    """What the job's error output gets for a record whose processing raised.

    ``record``: the step's input, or its text where it cannot travel; None where a timer raised.
    """

    step: str
    record: Any
    error: str
    traceback: str


class Guard:
    """Runs user code over batches for one step."""

    __slots__ = ("_step", "_is_aligned", "_collector", "_port")

    def __init__(self, step: str, is_aligned: bool, collector: Collector, port: int | None) -> None:
        """``is_aligned``: record i of the step's input is record i of the chain's. ``port``: of the error output."""
        self._step = step
        self._is_aligned = is_aligned
        self._collector = collector
        self._port = port

    @property
    def routes(self) -> bool:
        """Whether records that raise go to an error output; otherwise the task fails."""
        return self._port is not None

    def run(
        self, consume: Callable[[Iterator[Any]], None], rows: list[Any], pairs: list[Any] | None = None
    ) -> list[int]:
        """Lets ``consume`` take all rows from an iterator; where it raises, it goes on behind the record that raised.

        ``pairs``: (key, record) for each row, where rows are not the records. Answers the places of those that were
        routed. StepFailed: the first one where there is no error output.
        """
        records: Any = iter(rows)
        failed: list[int] = []
        while True:
            try:
                consume(records)
                return failed
            except RAISED as error:  # the user's code: its error is a record or a StepFailed
                place = len(rows) - records.__length_hint__() - 1
                self.caught(error, rows[place] if pairs is None else pairs[place][1], place)
                failed.append(place)

    def each(
        self, function: Callable[[Any], Any], rows: list[Any], pairs: list[Any] | None = None
    ) -> tuple[list[Any], list[int]]:
        """What ``function`` gives for each row that does not raise; the places of those that were routed."""
        results: list[Any] = []

        # Neither uses map(): that takes a StopIteration of the user's for the end of the rows.
        def at_once(records: Iterator[Any]) -> None:
            results[:] = [function(record) for record in records]

        def one_by_one(records: Iterator[Any]) -> None:
            append = results.append
            for record in records:
                append(function(record))

        failed = self.run(one_by_one if self.routes else at_once, rows, pairs)
        return results, failed

    def caught(self, error: BaseException, record: object, place: int | None = None) -> None:
        """User code raised at a record, the one at ``place`` of its batch: routes it, or raises StepFailed."""
        assert not isinstance(error, StepFailed), "results go on outside of what is guarded"
        if self._port is not None and _is_routable(error):
            routed = RoutedError(self._step, _travelling(record), _text(error), _frames(error))
            if self._collector.routed_error(f"{self._step}: {routed.error}".encode("utf-8", "backslashreplace")):
                self._collector.rows(self._port, [routed])
                return
        index = place if self._is_aligned else None
        raise StepFailed(FailedAt(self._step, index, shortened(record))) from error

    def failed(self) -> StepFailed:
        """What to raise from an error of a connector, which does not know its step."""
        return StepFailed(FailedAt(self._step, None, ""))


def shortened(record: object) -> str:
    """A record as people read it, the same in every process."""
    try:
        text = repr(record)
    except Exception as error:  # noqa: BLE001  a __repr__ of the user's
        text = f"<{type(record).__qualname__}, whose repr raised {type(error).__name__}>"
    return _plain(text)


def _is_routable(error: BaseException) -> bool:
    return isinstance(error, EnvironmentFault) or not isinstance(error, ClonosError)


def _travelling(record: object) -> object:
    try:
        encode_value(record)
    except (ValueUnsupported, ValueBeyondLimit):
        return shortened(record)
    return record


def _text(error: BaseException) -> str:
    try:
        return _plain(f"{type(error).__qualname__}: {error}")
    except Exception:  # noqa: BLE001  a __str__ of the user's
        return type(error).__qualname__


def _frames(error: BaseException) -> str:
    """Where it was raised, innermost last, without the frames of operators."""
    frames: list[str] = []
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__package__") != __package__:
            frames.append(place_of(traceback))
        traceback = traceback.tb_next
    return "\n".join(frames[-FRAMES_MAX:])


def _plain(text: str) -> str:
    text = _ADDRESS.sub("0x...", text.encode("utf-8", "backslashreplace").decode())
    if len(text) <= RECORD_CHARACTERS_MAX:
        return text
    return f"{text[:RECORD_CHARACTERS_MAX]}... ({len(text)} characters)"
