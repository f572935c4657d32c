"""Values, batches, keys and batches with timestamps, with their bytes since format 1, in golden.txt.

What stands there must be read for ever, so a line is never changed. After adding samples here, add their lines by
``python -m tests.unit.values.golden``, which refuses to change any that are there.
"""

from __future__ import annotations

import datetime
import decimal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clonos.core.values import encode_rows, encode_timed_rows, encode_value
from clonos.core.values.key_encoding import encode_key
from tests.unit.values.samples import Color, Frozen, Level, Nothing, Pair, Point, Rights, Shape

FILE = Path(__file__).with_name("golden.txt")

HOUR = datetime.timedelta(hours=1)

VALUES: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "largest of 64 bits": 2**64 - 1,
    "beyond 64 bits": 2**64,
    "smallest of 64 bits": -(2**63),
    "below 64 bits": -(2**63) - 1,
    "huge": 10**500,
    "float": 1.5,
    "whole float": 1.0,
    "minus zero": -0.0,
    "nan": float("nan"),
    "text": "zoë",
    "lone surrogate": "a\udfff",
    "bytes": b"\x00\xff",
    "empty tuple": (),
    "empty list": [],
    "empty dict": {},
    "empty set": set(),
    "tuples in lists": [(1, [2, (3,)]), ()],
    "dict": {"b": 1, 1: "int", "1": "text", b"1": "bytes", (1,): {"x": None}},
    "dict of odd scalars": {"\ud800": 2**70},
    "set": {1, "1", b"1", None, (1, "x"), 2**70, "\ud800"},
    "frozenset": frozenset({frozenset(), frozenset({1})}),
    "datetime": datetime.datetime(2024, 10, 27, 2, 30, 1, 5, fold=1),
    "datetime in UTC": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=datetime.UTC),
    "datetime at an offset": datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(-HOUR, "west")),
    "date": datetime.date(2024, 2, 29),
    "time": datetime.time(1, 2, 3, 4, datetime.timezone(HOUR), fold=1),
    "timedelta": datetime.timedelta(-1, 1, 1),
    "decimal": decimal.Decimal("-1.20E+5"),
    "signalling nan": decimal.Decimal("sNaN7"),
    "uuid": uuid.UUID(int=2**127 + 1),
    "safe uuid": uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
    "dataclass": Point((1, [2]), "x"),
    "dataclass with slots": Frozen(1),
    "dataclass without fields": Nothing(),
    "named tuple": Pair(1, "x"),
    "struct": Shape("a", {1}),
    "enum": Color.GREEN,
    "alias": Color.CRIMSON,
    "int enum": Level.HIGH,
    "flags": Rights.READ | Rights.WRITE,
    "no flags": Rights(0),
    "everything at once": [Point(Pair(Level.LOW, 2**70)), {Frozen(1): Point(Color.RED)}],
}

ROWS: dict[str, list[Any]] = {
    "no rows": [],
    "text rows": ["a", "zoë", ""],
    "odd text rows": ["a", "\ud800"],
    "int rows": [1, -1, 2**40],
    "odd int rows": [1, 2**64],
    "float rows": [1.0, -0.0],
    "bytes rows": [b"", b"x"],
    "bool rows": [True, False],
    "mixed rows": [None, True, 1, 1.0, "1"],
    "rows with bytes": [b"1", "1"],
    "tuple rows": [("a", 1, None), ("b", 2, 1.5)],
    "nested tuple rows": [(("a", 1), "x"), (("b", 2), "y")],
    "ragged tuple rows": [("a", 1), ("b",)],
    "empty tuple rows": [(), ()],
    "list rows": [["a", 1], ["b", 2]],
    "dict rows": [{"k": 1, "v": "x"}, {"k": 2, "v": "y"}],
    "odd dict rows": [{"k": 1, "v": 2}, {"v": 2, "k": 1}],
    "dataclass rows": [Point(1, "a"), Point(2, "b")],
    "named tuple rows": [Pair(1, (1, "a")), Pair(2, (2, "b"))],
    "struct rows": [Shape("a", 1), Shape("b", 2)],
    "datetime rows": [datetime.datetime(2024, 1, day, tzinfo=datetime.UTC) for day in (1, 2)],
    "odd datetime rows": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, fold=1)],
    "date rows": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "decimal rows": [decimal.Decimal("1E+5"), decimal.Decimal("NaN")],
    "enum rows": [Color.RED, Color.GREEN],
}

TIMED: dict[str, tuple[list[Any], list[int]]] = {
    "timed text rows": (["a", "zoë", ""], [1_700_000_000_000_000_000, -1, 0]),
    "timed tuple rows": ([("a", 1), ("b", 2)], [2**63 - 1, -(2**63)]),
    "rows with a time beyond 64 bits": ([1], [2**63]),
}

KEYS: dict[str, Any] = {
    "text key": "zoë",
    "odd text key": "\ud800",
    "bytes key": b"zo\xff",
    "int key": 1,
    "negative key": -129,
    "large key": 2**70,
    "true key": True,
    "none key": None,
    "uuid key": uuid.UUID(int=2**127 + 1),
    "date key": datetime.date(2024, 2, 29),
    "empty tuple key": (),
    "tuple key": ("a", 1, (True, None, b"")),
    "instant key": datetime.datetime(2024, 10, 27, 1, 30, 1, 5, tzinfo=datetime.UTC),
    "early instant key": datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    "member key": Color.RED,
    "int member key": (Level.HIGH, 2),
    "flags key": Rights.READ | Rights.WRITE,
}


def lines() -> dict[str, str]:
    """Content of golden.txt: the name of a sample and its bytes in hexadecimal."""
    return {name: data for name, _, data in (line.partition(": ") for line in FILE.read_text("utf-8").splitlines())}


def _encoded() -> dict[str, str]:
    groups: list[tuple[dict[str, Any], Callable[[Any], bytes]]] = [
        (VALUES, encode_value),
        (ROWS, encode_rows),
        (KEYS, encode_key),
        (TIMED, lambda sample: encode_timed_rows(*sample)),
    ]
    return {name: encode(sample).hex() for samples, encode in groups for name, sample in samples.items()}


if __name__ == "__main__":
    old = lines() if FILE.exists() else {}
    new = _encoded()
    changed = [name for name, data in old.items() if new.get(name) != data]
    if changed:
        sys.exit(f"the bytes of these samples would change, so stored ones could no longer be read: {changed}")
    FILE.write_text("".join(f"{name}: {data}\n" for name, data in new.items()), "utf-8")
