"""A writer of a broker's sink that does not know what is there, registered as in a job."""

from __future__ import annotations

from typing import Any

from clonos.operators.connector_contract import ImmediateSink, Registration, WriterIdentity


def registered(sink: ImmediateSink, number: int = 0, generation: int = 0) -> Any:
    """Returns a writer of the task ``out/0`` whose next row has a number."""
    writer = sink.immediate_writer()
    identity = WriterIdentity("job-1", "out/0", generation, 1)
    assert writer.register(identity, number) == Registration(number, None, knows_output=False)
    return writer
