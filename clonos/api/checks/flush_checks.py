"""Checks of ``flush=`` of a sink: whether it can mean anything for the sink and the checkpoints of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clonos.api.emission import check_emission
from clonos.api.graph_errors import InvalidJob
from clonos.operators.connector_contract import TransactionalSink
from clonos.operators.event_time.durations import duration_text

if TYPE_CHECKING:
    from clonos.api.step import Step

MILLISECOND_NS = 1_000_000


def check_flush(step: str, sink: object, flush: object) -> None:
    """Checks the ``flush=`` of a sink. A sink without a moment at which rows appear has ``flush_refused``, the reason.

    Raises: InvalidJob: it is no ``Emission``, or the sink refuses it.
    """
    check_emission(step, flush, "flush")
    refused: str = getattr(sink, "flush_refused", "")
    if refused:
        raise InvalidJob(step, f"has flush={flush}, and {refused}", "Leave out flush=.")


def check_flush_interval(step: Step, steps: Sequence[Step], checkpoint_every_ms: int) -> None:
    """Checks that a sink that shows its rows with checkpoints is not asked to show them more often.

    Raises: InvalidJob: it is.
    """
    for each in step.inputs if isinstance(step.sink, TransactionalSink) else ():
        flush = steps[each.step].flush
        if flush is None or flush.interval_ns is None or flush.interval_ns >= checkpoint_every_ms * MILLISECOND_NS:
            continue
        checkpoints = duration_text(checkpoint_every_ms * MILLISECOND_NS)
        raise InvalidJob(
            step.name,
            f"has flush={flush}, and its rows become visible with checkpoints only, every {checkpoints}",
            f"Lower checkpoint_every to {duration_text(flush.interval_ns)}, or leave out flush=.",
        )
