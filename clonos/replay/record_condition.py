"""Conditions on records, which ``--at`` and ``find`` take: what they hold for, and why one held for none."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Final

from clonos.core.model.errors import JobError
from clonos.core.values.column_rows import rows_of_columns
from clonos.replay.record_hooks import RecordAt

FIELDS_MAX: Final = 100
"""Names of fields, and different errors, that a condition remembers for its messages."""

OWN_NAMES: Final = ("record", "key", "number", "step")


class RecordCondition:
    """Condition on a record in front of a step. It counts the records that it was asked about, and those that lack a
    field that it names."""

    def __init__(self, text: str, holds: Callable[[RecordAt], bool] | CodeType) -> None:
        self.text = text
        self._holds = holds
        self._asked = self._held = 0
        self._lacking: Counter[str] = Counter()  # records without a field, by its name
        self._raised: Counter[str] = Counter()  # records for which the expression raised, by the error
        self._fields: dict[str, None] = {}

    def __call__(self, at: RecordAt) -> bool:
        if not isinstance(self._holds, CodeType):
            self._asked += 1 if at.last is None else at.record.num_rows
            found = self._holds(at)
        else:
            found = any(map(self._holds_for, _records_at(at)))
        self._held += found
        return found

    def _holds_for(self, at: RecordAt) -> bool:
        self._asked += 1
        fields = _fields_of(at.record)
        own = dict(zip(OWN_NAMES, (at.record, at.key, at.number, at.step), strict=True))
        try:
            return bool(eval(self._holds, {**fields, **own}))  # type: ignore[arg-type]  # noqa: S307  the user's own
        except Exception as error:  # noqa: BLE001  a record without such a field, or any other
            if len(self._fields) < FIELDS_MAX:
                self._fields.update(dict.fromkeys(fields))
            lacking = _field_lacking(error, at.record)
            counts = self._raised if lacking is None else self._lacking
            name = f"{type(error).__name__}: {error}" if lacking is None else lacking
            if name in counts or len(counts) < FIELDS_MAX:
                counts[name] += 1
            return False

    def notes(self) -> list[str]:
        """Returns why the condition did not hold: fields that records lack, errors, or that it held for none."""
        found = self.reasons()
        if not found and not self._held:
            found.append(f"--at {self.text!r}: it held for none of {self._asked:,} records")
        return found

    def reasons(self) -> list[str]:
        """Returns which fields records lack, and which errors the expression raised."""
        found = [
            f"the field {name!r} is missing in {count:,} of {self._asked:,} records{self._hint(name)}"
            for name, count in self._lacking.items()
        ]
        found += [
            f"it raised {error} for {count:,} of {self._asked:,} records" for error, count in self._raised.items()
        ]
        return [f"--at {self.text!r}: {each}" for each in found]

    def _hint(self, name: str) -> str:
        near = difflib.get_close_matches(name, [*self._fields, *OWN_NAMES], n=1)
        if near:
            return f". Did you mean {near[0]}?"
        if self._fields:
            return f", whose fields are {', '.join(self._fields)}"
        return ", which have no fields with names: use record, such as record[0]"


def condition_of(text: str) -> RecordCondition:
    """Returns the condition of ``--at``: ``record=N``, ``key=K``, ``step=NAME``, or an expression of Python.

    An expression has the fields of the record as names, and ``record``, ``key``, ``number`` and ``step``. Where it
    raises, because a record has no such field, it does not hold, and ``notes`` says so. For a batch of columns it holds
    for one of its rows.

    Raises: JobError: it is none of these.
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if equals and name == "record" and not value.startswith("="):
        if not value.replace("_", "").replace(",", "").isdigit():
            raise JobError(f"--at record={value}: give the number of a record of the epoch, from 1.")
        number = int(value.replace(",", ""))
        return RecordCondition(text, lambda at: at.number is not None and at.number <= number <= (at.last or at.number))
    if equals and name == "key" and not value.startswith("="):
        return RecordCondition(text, lambda at: at.key is not None and value in (str(at.key), repr(at.key)))
    if equals and name == "step" and not value.startswith("="):
        return RecordCondition(text, lambda at: at.step == value)
    try:
        return RecordCondition(text, compile(text, "--at", "eval"))
    except SyntaxError as error:
        raise JobError(
            f"--at {text!r} is no expression: {error.msg}. Give record=N, key=K, step=NAME or an expression of Python"
            " such as 'n > 7'."
        ) from None


def _records_at(at: RecordAt) -> Iterator[RecordAt]:
    """Yields each record of a batch, whose numbers are not known."""
    if at.last is None:
        yield at
    else:
        yield from (RecordAt(None, at.step, None, row) for row in rows_of_columns(at.record))


def _fields_of(record: Any) -> dict[str, Any]:
    if isinstance(record, dict):
        return {key: value for key, value in record.items() if isinstance(key, str)}
    if hasattr(record, "_asdict"):
        return dict(record._asdict())
    return dict(vars(record)) if hasattr(record, "__dict__") else {}


def _field_lacking(error: Exception, record: Any) -> str | None:
    """Returns the name of the field that a record lacks; None if an error has another reason."""
    if isinstance(error, NameError):
        return error.name
    if isinstance(error, AttributeError) and error.obj is record:
        return error.name
    if isinstance(error, KeyError) and isinstance(record, dict) and error.args and error.args[0] not in record:
        return str(error.args[0])
    return None
