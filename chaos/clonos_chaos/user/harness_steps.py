"""The job around the steps of a harness: a source that gives nothing, the steps in one task, and what reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from clonos.api.event_time import AnyTimestamps
from clonos.api.stream import Stream
from clonos.connectors import collect, values
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import JobError
from clonos.core.model.ids import ChannelId
from clonos.core.model.options import Options
from clonos.core.values import TimedRows
from clonos.core.values.elements import decode_elements
from clonos.job import Job
from clonos.job.description import graph_of
from clonos.operators.job_image import JobImage
from clonos.operators.tags import Tag

STEP: Final = "step"
STEP_VERTEX: Final = 1
RESULTS: Final = ""
"""Output of the results, beside those of side outputs, which have the names of their tags."""

Steps = Callable[[Any], Stream[Any]]
"""Function from a stream (keyed, if the harness has a key) to the stream of results."""


class HarnessMisused(JobError):
    """A method of a harness was called at the wrong time."""

    method: str
    problem: str

    def __str__(self) -> str:
        return f"Harness.{self.method}(): {self.problem}"


class Emitted(NamedTuple):
    """Row that the steps have emitted. ``output``: RESULTS, or the name of a tag."""

    output: str
    row: Any
    timestamp_ns: int | None


class Encoded(NamedTuple):
    """Encoded elements that the steps have emitted."""

    channel: ChannelId
    kind: ElementKind
    payload: bytes


def compiled(
    function: Any,
    key: Callable[[Any], Any] | None,
    steps: Steps | None,
    effects: bool,
    timestamps: AnyTimestamps | None,
    side_outputs: Sequence[Tag[Any]],
) -> JobImage:
    """Compiles the job. Raises: HarnessMisused: the steps cannot be driven by a harness."""
    if (function is None) == (steps is None):
        raise HarnessMisused("__init__", "pass either a function (or a process class) or steps=.")
    job = Job("harness")
    source: Stream[Any] = job.source(values([]), name="given", timestamps=timestamps)
    stream: Any = source.rebalance() if key is None else source.key_by(key)
    if steps is not None:
        results = steps(stream)
    elif hasattr(function, "process"):
        results = stream.process(function, name=STEP, effects=effects)
    elif key is not None:
        results = stream.stateful_map(function, name=STEP, effects=effects)
    else:
        results = stream.map(function, name=STEP, effects=effects)
    results.rebalance().sink(collect(), name="seen")
    for number, tag in enumerate(side_outputs):
        results.side_output(tag).rebalance().sink(collect(), name=f"side-{number}")
    image = graph_of(job).compile(Options())
    if len(image.vertices) != len(("given", STEP, "seen", *side_outputs)):
        raise HarnessMisused("__init__", "the steps make more than one task. Use crash_test for them.")
    return image


class StepOutputs:
    """Outputs of the steps: which channel is which output."""

    def __init__(self, image: JobImage, side_outputs: Sequence[Tag[Any]]) -> None:
        names = {"seen": RESULTS} | {f"side-{number}": tag.name for number, tag in enumerate(side_outputs)}
        vertices = [image.vertices[image.plan.vertex_of[channel.receiving_task]] for channel in self._channels(image)]
        self._of = {
            channel.id: names[vertex.name] for channel, vertex in zip(self._channels(image), vertices, strict=True)
        }

    @staticmethod
    def _channels(image: JobImage) -> Sequence[Any]:
        return image.plan.outputs[image.plan.tasks[STEP_VERTEX]]

    def emitted(self, outputs: Iterable[Encoded]) -> list[Emitted]:
        """Returns the rows of encoded elements, without watermarks, barriers and the end."""
        found: list[Emitted] = []
        for channel, kind, payload in outputs:
            if kind.is_data:
                name, batch = self._of[channel], decode_elements(kind, payload)
                if isinstance(batch, TimedRows):
                    found += [Emitted(name, *each) for each in zip(*batch, strict=True)]
                else:
                    rows = batch if isinstance(batch, list) else batch.to_pylist()
                    found += [Emitted(name, row, None) for row in rows]
        return found
