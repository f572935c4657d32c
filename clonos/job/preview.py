"""First rows of a stream: the part of a job that leads to it, run on child processes with a store of its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any, Final

from clonos.api.graph import JobGraph
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import StepInput
from clonos.config import resolve_keywords
from clonos.connectors.driver_outputs import FirstRowsSink
from clonos.connectors.in_memory import blackhole
from clonos.job.handle import Handle

POLL_S: Final = 0.05
DROPPED: Final = frozenset({"resume", "checkpoint", "overwrite", "metrics", "master", "py_files", "spare_slots"})
"""Options of the job that a preview does not follow."""

PREVIEW: Final = {"slots": "process", "checkpoint_every": "100ms", "standbys": 0}


def take_rows(graph: JobGraph, options: Mapping[str, object], inputs: tuple[StepInput, ...], count: int) -> list[Any]:
    """Runs the steps that lead to ``inputs`` until their results have ``count`` rows or end, and returns these rows.

    Records that raise are left out if the job has an error output.

    Raises: InvalidJob: ``count`` is not an int of at least 1. The errors of ``Handle.wait``.
    """
    if type(count) is not int or count < 1:
        raise InvalidJob("take", f"gets {count!r}", "Give the number of rows: an int of at least 1.")
    sink = FirstRowsSink(count)
    part = graph.part(inputs, "take", sink, None if graph.errors is None else blackhole())
    followed = {key: value for key, value in options.items() if key not in DROPPED}
    with TemporaryDirectory(prefix="clonos-take-") as store:
        settings = resolve_keywords(followed | PREVIEW | {"store": store})
        with Handle(part, settings) as handle:
            is_running = True
            while is_running and len(sink.rows) < count:
                with suppress(TimeoutError):
                    handle.wait(POLL_S)
                    is_running = False
            if is_running:
                handle.stop(drain=False)
                handle.wait()
    return sink.rows
