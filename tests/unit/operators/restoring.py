"""Runs a job twice, once with restores at barriers, and compares the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from tests.unit.operators.driver import Run

actions = st.lists(
    st.sampled_from(["read", "read", "time", "fire", "barrier", "full barrier", "restore", "restore"]), max_size=25
)


def check_restores(
    build: Callable[[JobGraph, list[Any]], None],
    records: list[Any],
    actions: list[str],
    parallelism: int,
    records_max: int,
) -> None:
    """Asserts that restores at barriers change nothing."""
    graph = JobGraph("job")
    build(graph, records)
    image = graph.compile(Options(), parallelism=parallelism)
    steady, troubled = Run(image), Run(image)
    for checkpoint, action in enumerate([*actions, "restore"], start=1):
        for each in (steady, troubled):
            if action == "read":
                each.read(records_max)
                each.drain()
            elif action in ("time", "fire"):
                each.pass_time(1.1 if action == "time" else 0)
        if action == "restore":
            # The last changes are taken: changes after them would be lost with the old run; here there are none.
            taken = troubled.barrier(checkpoint)
            steady.barrier(checkpoint)
            written = troubled.written
            troubled.close()
            troubled = Run(image, taken, troubled.clock)
            troubled.written = written
        elif action.endswith("barrier"):
            for each in (steady, troubled):
                each.barrier(checkpoint, full=action.startswith("full"))
    for each in (steady, troubled):
        each.finish(records_max)
        each.close()
    assert repr(troubled.written) == repr(steady.written)
