"""The job around the steps of a harness: sources that give nothing, the steps in one task, and what reads them."""

from __future__ import annotations

import inspect
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
from clonos_chaos.user.harness_inputs import HarnessInput, inputs_of

STEP: Final = "step"
RESULTS: Final = ""
"""Output of the results, beside those of side outputs, which have the names of their tags."""

Steps = Callable[..., Stream[Any]]
"""Function from a stream, or from two, to the stream of results. A stream has keys if the harness has a key for it."""

Key = Callable[[Any], Any] | None


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


class HarnessJob(NamedTuple):
    """The job of a harness, compiled. ``vertex``: that of the steps, after those of the sources."""

    image: JobImage
    vertex: int
    inputs: tuple[HarnessInput, ...]


def compiled(
    function: Any,
    keys: tuple[Key, Key],
    steps: Steps | None,
    effects: bool,
    timestamps: tuple[AnyTimestamps | None, AnyTimestamps | None],
    side_outputs: Sequence[Tag[Any]],
) -> HarnessJob:
    """Compiles the job. ``keys``, ``timestamps``: of the first and of the second input, if there is one.

    Raises: HarnessMisused: the steps cannot be driven by a harness.
    """
    if (function is None) == (steps is None):
        raise HarnessMisused("__init__", "pass either a function (or a process class) or steps=.")
    width = 2 if hasattr(function, "process_first") or _takes_two(steps) else 1
    if width == 1 and (keys[1] is not None or timestamps[1] is not None):
        raise HarnessMisused(
            "__init__",
            "second_key= and second_timestamps= need a function with process_second, or steps= of two streams.",
        )
    job = Job("harness")
    given = ("given", timestamps[0]), ("second", timestamps[1] if timestamps[1] is not None else timestamps[0])
    streams: list[Any] = [
        _stream(job.source(values([]), name=name, timestamps=times), key)
        for (name, times), key in zip(given[:width], keys[:width], strict=True)
    ]
    results = _results(streams, function, keys, steps, effects)
    results.rebalance().sink(collect(), name="seen")
    for number, tag in enumerate(side_outputs):
        results.side_output(tag).rebalance().sink(collect(), name=f"side-{number}")
    graph = graph_of(job)
    image = graph.compile(Options())
    if len(image.vertices) != len((*streams, STEP, "seen", *side_outputs)):
        raise HarnessMisused("__init__", "the steps make more than one task. Use crash_test for them.")
    return HarnessJob(image, width, inputs_of(graph, image, width))


def _takes_two(steps: Steps | None) -> bool:
    """Returns whether a function needs two streams. Parameters with a default, as in lambdas of a loop, do not count.

    Raises: HarnessMisused: it needs more than two, or none.
    """
    if steps is None:
        return False
    parameters = inspect.signature(steps).parameters.values()
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each.name for each in positional if each.default is each.empty]
    takes_any = bool(positional) or any(each.kind is each.VAR_POSITIONAL for each in parameters)
    if len(needed) > 2 or not takes_any:
        problem = f"steps= takes {', '.join(needed) or 'no argument'}. Give a function of one stream or of two streams."
        raise HarnessMisused("__init__", problem)
    return len(needed) == 2


def _stream(source: Stream[Any], key: Key) -> Any:
    return source.rebalance() if key is None else source.key_by(key)


def _results(streams: list[Any], function: Any, keys: tuple[Key, Key], steps: Steps | None, effects: bool) -> Any:
    """Returns the results of the steps, or of the function."""
    if steps is not None:
        return steps(*streams)
    stream = streams[0]
    if len(streams) == 2:
        second = streams[1].broadcast() if keys[1] is None else streams[1]
        return stream.connect(second).process(function, name=STEP, effects=effects)
    if hasattr(function, "process"):
        return stream.process(function, name=STEP, effects=effects)
    if keys[0] is not None:
        return stream.stateful_map(function, name=STEP, effects=effects)
    return stream.map(function, name=STEP, effects=effects)


class StepOutputs:
    """Outputs of the steps: which channel is which output."""

    def __init__(self, job: HarnessJob, side_outputs: Sequence[Tag[Any]]) -> None:
        image, plan = job.image, job.image.plan
        names = {"seen": RESULTS} | {f"side-{number}": tag.name for number, tag in enumerate(side_outputs)}
        channels = plan.outputs[plan.tasks[job.vertex]]
        vertices = [image.vertices[plan.vertex_of[channel.receiving_task]] for channel in channels]
        self._of = {channel.id: names[vertex.name] for channel, vertex in zip(channels, vertices, strict=True)}

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
