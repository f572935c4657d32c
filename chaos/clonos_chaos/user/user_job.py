"""A user's job in a simulated world: chains that report what they do, and no expected output."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clonos.core.model.ids import TaskId
from clonos.core.model.options import Options
from clonos.core.ports.operator_chain import Chain, ChainContext, ChainSnapshot, Mirror
from clonos.operators.chain import OperatorChain, VertexImage
from clonos.operators.job_image import JobImage
from clonos_chaos.sim.producers import SimProducer
from clonos_chaos.user.user_calls import CallWatch, WatchedSubmitting
from clonos_chaos.user.user_graph import Ready


class WatchedChain(OperatorChain):
    """Operator chain that reports its calls and snapshots."""

    def __init__(self, image: VertexImage, calls: CallWatch) -> None:
        super().__init__(image)
        self._calls = calls

    def open(self, context: ChainContext, mirror: Mirror | None, position: bytes | None) -> None:
        self._context = context
        self._calls.opened(context)
        recorder: Any = WatchedSubmitting(context.recorder, self._calls)
        super().open(replace(context, recorder=recorder), mirror, position)

    def snapshot(self, checkpoint: int, full: bool) -> ChainSnapshot:
        self._calls.at_barrier(self._context.recorder, checkpoint)
        return super().snapshot(checkpoint, full)


class _Calls:
    """Service log of a world: all calls."""

    def __init__(self, watch: CallWatch) -> None:
        self.answers: Any = watch.calls


class UserJob:
    """User's job with the interface that ``World`` needs. Each incarnation gets a copy of the user's objects."""

    def __init__(self, job: Ready, calls: CallWatch, options: Options) -> None:
        self.ready = job
        self.name = job.image.plan.job_name
        self.plan = replace(job.image.plan, sharing_depth=options.sharing_depth, replicas=options.replicas)
        self.service = _Calls(calls)
        self.records = job.records or 0
        self.copies = 1
        self.producers: dict[TaskId, SimProducer] = {}
        self.chains_open = 0  # operators check their resources themselves
        self._calls = calls

    def expected(self) -> Sequence[int]:
        """Returns nothing: the expected output is unknown."""
        return ()

    def complaints(self, alarms: list[dict[str, Any]], exposed: set[TaskId]) -> list[str]:
        """Returns nothing: there are no producers."""
        return []

    def new_chain(self, vertex: int) -> Chain:
        """Makes a chain for one incarnation."""
        image: JobImage = pickle.loads(self.ready.packed)  # noqa: S301  it was packed by this process
        return WatchedChain(image.vertices[vertex], self._calls)

    def new_mirror(self, vertex: int) -> Mirror:
        """Makes an empty mirror of its state."""
        return self.ready.image.new_mirror(vertex)
