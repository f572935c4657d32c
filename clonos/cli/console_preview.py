"""Preview of a job's output: each sink prints its rows at once, before any checkpoint, and writes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from clonos.api.graph import JobGraph
from clonos.api.step import Step
from clonos.operators.connector_contract import WriterContext

MARK: Final = "preview"
ROW_CHARACTERS_MAX: Final = 500


class PreviewSink:
    """Transactional sink that prints in the slot. ``step``: name of the step whose sink it replaces."""

    def __init__(self, step: str) -> None:
        self.step = step

    def prepare_output(self, job_id: str, resume: bool, overwrite: bool) -> None:
        """Does nothing: there is no output."""

    def writer(self) -> PreviewWriter:
        """Creates a writer."""
        return PreviewWriter(self.step)

    def commit(self, job_id: str, checkpoint: int, parts: list[bytes]) -> None:
        """Does nothing: the rows were printed when they came."""


class PreviewWriter:
    """Writer that prints each row."""

    def __init__(self, step: str) -> None:
        self._step = step

    def open(self, context: WriterContext) -> None:
        """Does nothing."""

    def write(self, rows: list[Any]) -> None:
        """Prints rows, on the driver's terminal."""
        for row in rows:
            text = row if isinstance(row, str) else repr(row)
            print(f"{MARK} {self._step}: {text[:ROW_CHARACTERS_MAX]}")

    def write_columns(self, batch: Any) -> None:
        """Prints the rows of a ``pyarrow.RecordBatch``."""
        self.write(batch.to_pylist())

    def prepare(self, checkpoint: int) -> None:
        """Returns None: nothing is committed."""
        return None

    def close(self) -> None:
        """Does nothing."""


def previewed(job: JobGraph) -> JobGraph:
    """Returns a copy of the job whose sinks print their rows instead of writing them."""

    def change(step: Step) -> Step:
        return step if step.sink is None else replace(step, sink=PreviewSink(step.name))

    return job.changed(change, None if job.errors is None else PreviewSink("errors"))
