"""Rows of a table in a lake, with an array and a day to divide it by."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow

SCHEMA = pyarrow.schema(
    [
        ("n", pyarrow.int64()),
        ("name", pyarrow.string()),
        ("at", pyarrow.timestamp("us", "UTC")),
        ("tags", pyarrow.list_(pyarrow.string())),
        ("day", pyarrow.date32()),
    ]
)
OTHER = "other-0123456789abcdef"


def row(number: int, **fields: Any) -> dict[str, Any]:
    """A row of the table."""
    at = datetime(2026, 1, 2, 3, tzinfo=UTC)
    named = {"n": number, "name": f"name {number}", "at": at, "tags": ["a"]}
    return named | {"day": date(2026, 1, number % 3 + 1)} | fields
