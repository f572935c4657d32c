"""HTML tables for notebooks: the rows of a result, the tasks of a running job."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

ROWS_SHOWN: Final = 20
CELL_CHARACTERS_MAX: Final = 200


def html_table(head: Iterable[object], rows: Iterable[Iterable[object]], caption: str) -> str:
    """Returns a table with escaped texts."""
    lines = [f"<table><caption>{escape(caption)}</caption>", _line("th", head)]
    return "\n".join([*lines, *(_line("td", row) for row in rows), "</table>"])


def html_of_rows(rows: Sequence[Any], caption: str) -> str:
    """Returns the first rows of a result: a column for each field of dicts, dataclasses and named tuples."""
    records = [_fields(row) for row in rows[:ROWS_SHOWN]]
    head = list(dict.fromkeys(name for record in records for name in record))
    cells = ([record.get(name, "") for name in head] for record in records)
    return html_table(head, cells, f"{caption}, the first {ROWS_SHOWN}" if len(rows) > ROWS_SHOWN else caption)


def _fields(row: Any) -> Mapping[str, Any]:
    if isinstance(row, dict):
        return {str(name): value for name, value in row.items()}
    if isinstance(row, tuple):
        names: Sequence[str] = getattr(row, "_fields", None) or [str(index) for index in range(len(row))]
        return dict(zip(names, row, strict=True))
    if dataclasses.is_dataclass(row):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return {"value": row}


def _line(tag: str, cells: Iterable[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(_text(cell))}</{tag}>" for cell in cells) + "</tr>"


def _text(cell: object) -> str:
    text = cell if isinstance(cell, str) else repr(cell)
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[:CELL_CHARACTERS_MAX]}..."
