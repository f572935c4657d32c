"""Rows on their way into an immediate sink in a job with an error output."""

from __future__ import annotations

from typing import Any

from clonos.api.graph import JobGraph
from clonos.operators.user_errors import RoutedError
from tests.unit.operators.driver import Given, Outbox, run


def numbered(sink: Any, rows: list[Any]) -> tuple[list[Any], list[RoutedError]]:
    """Returns the rows that have numbers, in the order in which the writer gets them, and the errors of the others."""
    graph = JobGraph("job", errors=Outbox())
    graph.source(Given(rows)).rebalance().sink(sink, name="out")
    ended = run(graph, parallelism=1)
    return ended.written.get("out", []), ended.written.get("errors", [])
