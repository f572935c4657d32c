"""Sample of the first records of an exchange by key, with their keys, by which a changed key function is noticed.

A resume cannot compare two functions, and state of another key is taken for that of the record without a word. So the
checkpoint has some records with the keys that they had, and ``open`` of each incarnation asks the function again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from clonos.core.model.errors import ClonosError, JobError
from clonos.core.ports.recorder import Recorder, ServiceWhileOpening, running
from clonos.core.values.key_encoding import decode_key, encode_key
from clonos.core.values.value import decode_value, encode_value
from clonos.operators.state.keyed_state import Table

SAMPLED_MAX: Final = 8
"""Records in the sample."""

OF_BATCH_MAX: Final = 2
"""Records of one batch, because those of a batch may be alike."""

RECORD_BYTES_MAX: Final = 4096
"""Size of an encoded record above which it is not stored."""

TEXT_CHARACTERS_MAX: Final = 200

NOT_STORED: Final = (b"", b"")


class KeyChanged(JobError):
    """Error for a key function that gives a record another key than it had before the resume."""

    step: str
    reader: str
    record: str
    before: str
    now: str

    def __str__(self) -> str:
        return (
            f'the key of the step "{self.step}" has changed: the record {self.record} had the key {self.before},'
            f' and now {self.now}. The state of "{self.reader}" in the checkpoint belongs to the earlier keys.'
            " Resume with the key as it was, or start afresh with --overwrite; a key must depend on nothing but the"
            " record."
        )


class ExchangeSample:
    """Sample of one exchange. Its table is part of the state of the sending task."""

    __slots__ = ("_table", "is_wanted")

    def __init__(self, table: Table) -> None:
        self._table = table
        self.is_wanted = len(table.entries) < SAMPLED_MAX

    def add(self, rows: list[Any], keys: list[Any]) -> None:
        """Adds the first records of a batch, until there are enough."""
        for row, key in zip(rows[:OF_BATCH_MAX], keys, strict=False):
            number = len(self._table.entries)
            if number >= SAMPLED_MAX:
                break
            self._table.entries[number] = _encoded(row, key)
            self._table.changed[number] = None
        self.is_wanted = len(self._table.entries) < SAMPLED_MAX

    def check(self, key: Callable[[Any], Any], step: str, reader: str) -> None:
        """Compares the keys of the sample with those that the function gives now. A function that uses a service is not
        asked.

        Raises: KeyChanged.
        """
        for data, before in self._table.entries.values():
            if not data:
                continue
            try:
                row = decode_value(data)
            except ClonosError:
                return
            record = repr(row)[:TEXT_CHARACTERS_MAX]  # the function might change the record
            try:
                with running(cast(Recorder, _Unanswering(step))):
                    now = encode_key(found := key(row))
            except ClonosError:
                return
            except Exception as error:
                raised = f"the function raises {type(error).__name__}: {error}"
                raise KeyChanged(step, reader, record, repr(decode_key(before)), raised) from error
            if now != before:
                raise KeyChanged(step, reader, record, repr(decode_key(before)), f"it is {found!r}")


class _Unanswering:
    """Recorder that answers no service: what a function does with the answer could not be compared."""

    def __init__(self, step: str) -> None:
        self.step = step

    def __getattr__(self, name: str) -> Any:
        raise ServiceWhileOpening(self.step, name)


def _encoded(row: Any, key: Any) -> tuple[bytes, bytes]:
    try:
        data = encode_value(row, bytes_max=RECORD_BYTES_MAX)
        return data, encode_key(key)
    except ClonosError:  # too large, or an error that sending the record has reported
        return NOT_STORED
