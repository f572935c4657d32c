"""Targets: values, rows, columns, keys, causal logs, outcomes of calls and state, from peers and from the store."""

from __future__ import annotations

import datetime
import decimal
import traceback
from typing import Any

import pyarrow

from clonos.core.log import determinants as d
from clonos.core.log.call_outcomes import (
    OutcomeMalformed,
    OutcomeUnreadable,
    declare_exception,
    decode_outcome,
    encode_outcome,
)
from clonos.core.model.errors import LogMalformed
from clonos.core.model.watermark import (
    ACTIVE,
    END_OF_TIME_NS,
    IDLE,
    INSTANT_NS_MIN,
    WatermarkMalformed,
    decode_watermark,
    encode_watermark,
    is_watermark,
)
from clonos.core.values import (
    ValueMalformed,
    decode_columns,
    decode_rows,
    decode_timed_rows,
    decode_value,
    encode_columns,
    encode_rows,
    encode_timed_rows,
    encode_value,
)
from clonos.core.values.key_encoding import decode_key, encode_key
from clonos.operators.state.keyed_state import StateBackend, StateImage
from clonos.operators.state.state_errors import StateMalformed
from tests.fuzz.target import Target, of_bytes, of_msgpack
from tests.unit.values.golden import KEYS, ROWS, TIMED, VALUES


class Declined(Exception):
    """An exception of a service of the user's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code + 0


def targets() -> list[Target]:
    """Targets of this file."""
    return [*_values(), _columns(), _watermarks(), *_logs(), _state()]


def _values() -> list[Target]:
    values = [encode_value(value) for value in VALUES.values()]
    rows = [encode_rows(batch) for batch in ROWS.values()]
    timed = [encode_timed_rows(*batch) for batch in TIMED.values()]
    keys = [encode_key(key) for key in KEYS.values()]

    def read_rows(data: bytes) -> None:
        decode_rows(memoryview(data))

    def read_timed_rows(data: bytes) -> None:
        found = decode_timed_rows(memoryview(data))
        assert len(found.rows) == len(found.times)
        assert all(type(each) is int for each in found.times)

    return [
        Target("values", of_msgpack(values), decode_value, (ValueMalformed,), share=40),
        Target("rows", of_msgpack([row[1:] for row in rows], sealed=_as_rows), read_rows, (ValueMalformed,), share=40),
        Target(
            "timed rows",
            of_msgpack([each[1:] for each in timed], sealed=_as_timed_rows),
            read_timed_rows,
            (ValueMalformed,),
            share=20,
        ),
        Target("keys", of_bytes(keys), decode_key, (ValueMalformed,), share=20),
    ]


def _as_rows(column: bytes) -> bytes:
    return b"\x01" + column


def _as_timed_rows(batch: bytes) -> bytes:
    return b"\x02" + batch


# ------------------------------------------------------------------ watermarks


def _watermarks() -> Target:
    samples = [encode_watermark(each) for each in (0, -1, INSTANT_NS_MIN, END_OF_TIME_NS, IDLE, ACTIVE)]
    return Target("watermarks", of_bytes(samples), _read_watermark, (WatermarkMalformed,))


def _read_watermark(data: bytes) -> None:
    """A slot accepts just the payloads that its task can decode."""
    is_accepted = is_watermark(memoryview(data))
    try:
        watermark = decode_watermark(memoryview(data))
    except WatermarkMalformed:
        assert not is_accepted, data
        raise
    assert is_accepted, data
    assert encode_watermark(watermark) == data


# ------------------------------------------------------------------ columns


def _columns() -> Target:
    words = pyarrow.array(["a", None, "straße", "x" * 40])
    batches = [
        pyarrow.record_batch({"n": [1, 2, None], "x": [0.5, None, 1e9], "t": ["a", "ä" * 9, None]}),
        pyarrow.record_batch({"w": words, "d": words.dictionary_encode()}),
        pyarrow.record_batch({"l": [[1, 2], None, [], [3]], "s": [{"a": 1, "b": "x"}, None, {"a": 2, "b": ""}, None]}),
        pyarrow.record_batch({"v": words.cast(pyarrow.string_view()), "b": [b"", b"x" * 30, None, b"\x00"]}),
        pyarrow.record_batch({"m": pyarrow.array([[("a", 1)], [], None], pyarrow.map_(words.type, pyarrow.int32()))}),
        pyarrow.record_batch({"i": [datetime.datetime(2026, 1, 1), None], "c": [decimal.Decimal("1.25"), None]}),
        pyarrow.record_batch({"f": pyarrow.array([b"12", b"ab"], pyarrow.binary(2)), "o": [True, None]}),
        pyarrow.record_batch({"r": pyarrow.RunEndEncodedArray.from_arrays([2, 5], ["a", "b"])}),
        pyarrow.record_batch({"u": pyarrow.UnionArray.from_sparse(
            pyarrow.array([0, 1], pyarrow.int8()), [pyarrow.array([1, 2]), pyarrow.array(["x", "y"])]
        )}),
        pyarrow.record_batch({}),
    ]  # fmt: skip
    return Target(
        "columns", of_bytes([encode_columns(batch) for batch in batches]), _use_columns, (ValueMalformed,), share=20
    )


def _use_columns(data: bytes) -> None:
    """Uses what was read as steps do: a wrong offset would read foreign memory."""
    batch = decode_columns(data)
    assert all(isinstance(name, str) for name in batch.schema.names)
    batch.equals(batch.slice(0, batch.num_rows))
    for column in batch.columns:
        try:
            column.to_pylist()
            column.take(pyarrow.array([0] * bool(len(column)), pyarrow.int64()))
        except Exception:  # noqa: BLE001  Python has no such value, Arrow no such kernel: only a crash counts
            pass


# ------------------------------------------------------------------ causal logs


def _logs() -> list[Target]:
    entries = [
        *(d.step(0, 3), d.step(126, 1), d.step(127, 9), d.step(1 << 20, 1 << 40), d.numbers(d.READ, 3, 1000)),
        *(d.numbers(d.END), d.numbers(d.CLOCK, 1_234_567), d.numbers(d.TIMER, 0), d.numbers(d.TRIGGER, 17)),
        *(d.seed(bytes(16)), d.blob(d.INTENT, b"digest" * 9), d.call(9, b""), d.completion(3, 1 << 40, b"outcome")),
        *(d.blob(d.ROUTED, b"x"), d.blob(d.SPLITS, b"y" * 300)),
    ]
    logs = [*entries, b"".join(entries), d.step(0, 1) * 20 + d.numbers(d.CLOCK, 5) * 3]
    outcomes = [
        *(encode_outcome("ask", value) for value in (None, 17, "text", [1, {"a": (2.5,)}], b"x" * 200)),
        *(encode_outcome("ask", error) for error in (ValueError("no"), OSError(2, "gone"), KeyError(("a", 1)))),
        encode_outcome("ask", Declined(3, "never")),
        encode_outcome("ask", _with_note(RuntimeError("x"))),
        encode_outcome("ask", UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why")),
        encode_outcome("ask", type("Local", (Exception,), {})("described")),
    ]
    declare_exception(Declined)
    return [
        Target("causal log", of_bytes(logs, entries), _read_log, (LogMalformed,), share=30),
        Target(
            "outcomes",
            _outcomes(outcomes),
            _read_outcome,
            (OutcomeMalformed, OutcomeUnreadable, ValueMalformed),
            share=30,
        ),
    ]


def _with_note(error: Exception) -> Exception:
    error.add_note("a note")
    return error


def _read_log(data: bytes) -> None:
    d.elements_covered(data, 200)
    reader = d.LogReader(data, 77)
    while not reader.at_end:
        assert reader.begins_with_whole_step in (True, False)
        reader.next()


def _outcomes(samples: list[bytes]) -> Any:
    """One byte, followed by a value."""
    kinds = {
        bytes([kind]): of_msgpack([s[1:] for s in samples if s[0] == kind], sealed=bytes([kind]).__add__)
        for kind in (0, 1, 2)
    }
    any_kind = of_bytes(samples)
    return lambda random: random.choice((*kinds.values(), any_kind))(random)


def _read_outcome(data: bytes) -> None:
    """An exception that was recorded is raised by ``decode_outcome`` itself: that is its outcome."""
    try:
        decode_outcome(data)
    except Exception as error:
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        if frames[-1] != decode_outcome.__name__:
            raise


# ------------------------------------------------------------------ state


def _state() -> Target:
    samples = []
    for full in (True, False):
        backend = StateBackend(None)
        table = backend.table("count/total")
        for key in ("a", 1, None, ("x", True), b"k"):
            table.set(key, {"n": 1, "l": [1, 2]})
        other = backend.table("window/panes")
        for key in range(30):
            other.set(key, key * 1.5)
        backend.changes(True)
        table.delete("a")
        table.set("b", (1, "x"))
        other.set(7, 1.0)
        samples.append(backend.changes(full))
    return Target(
        "state", of_msgpack(samples), lambda data: StateImage().apply(data), (StateMalformed, ValueMalformed), share=30
    )
