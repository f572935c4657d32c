"""The report of runs as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clonos_chaos.runner_record import Record


def write_report(file: Path, records: Sequence[Record]) -> None:
    """One page for all runs."""
    raise NotImplementedError(file, records)
