"""Lines of CSV, each with ``\\n`` at its end. Cells with a line end of any kind are quoted."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any


def csv_lines(rows: Sequence[Sequence[Any]], delimiter: str) -> str:
    """Returns rows of cells as lines."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    found = text.getvalue()
    if "\r" not in found:
        return found
    lines = _Lines()  # the module quotes a cell only for the characters of its line end
    csv.writer(lines, delimiter=delimiter, lineterminator="\r\n").writerows(rows)
    return "".join(lines)


class _Lines(list[str]):
    """Takes the lines of a writer, one by one."""

    def write(self, line: str) -> None:
        """Appends a line."""
        self.append(line.removesuffix("\r\n") + "\n")
