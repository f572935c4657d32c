"""Inputs of the steps of a harness: how the records that a test gives travel to the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from clonos.api.graph import JobGraph
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.ids import ChannelId, CheckpointId
from clonos.core.model.watermark import encode_watermark
from clonos.core.ports.task_port import Delivered
from clonos.core.values import encode_rows, encode_timed_rows
from clonos.operators.chain import InputShape
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.fields import function_of
from clonos.operators.job_image import JobImage


class Given(NamedTuple):
    """Element of an input, by the number of the input. ``content``: a formed row, a checkpoint or a watermark."""

    number: int
    kind: ElementKind
    content: Any


class HarnessInput(NamedTuple):
    """Input of the steps, from a source of its own. ``assigner``: None on a stream without timestamps."""

    channel: ChannelId
    form: InputShape
    key: Callable[[Any], Any] | None
    assigner: TimestampAssigner | None

    def formed(self, rows: list[Any]) -> list[Any]:
        """Returns the rows as they travel: with their keys or as these alone, and with their timestamps."""
        formed = rows
        if self.form is InputShape.PAIRS:
            assert self.key is not None, "pairs have keys"
            formed = [(self.key(row), row) for row in rows]
        elif self.form is InputShape.KEYS:
            assert self.key is not None, "a key is that of a record"
            formed = list(map(self.key, rows))
        if self.assigner is None:
            return formed
        return list(zip(formed, map(self.assigner.timestamp_ns, rows), strict=True))

    def encoded(self, formed: list[Any]) -> bytes:
        """Returns the bytes of formed rows."""
        if self.assigner is None:
            return encode_rows(formed)
        return encode_timed_rows([row for row, _ in formed], [timestamp_ns for _, timestamp_ns in formed])


def inputs_of(graph: JobGraph, image: JobImage, vertex: int) -> tuple[HarnessInput, ...]:
    """Returns the inputs of the task of a vertex, one for each source of the job, in the order of the sources."""
    plan = image.plan
    edges = [number for number, edge in enumerate(plan.edges) if edge.target == vertex]
    found: dict[int, HarnessInput] = {}
    for channel in plan.inputs[plan.tasks[vertex]]:
        source = plan.edges[channel.edge].source
        key = next(each.key for step in graph.steps for each in step.inputs if each.step == source)
        function = None if key is None else function_of(key.key)
        form = image.vertices[vertex].inputs[edges.index(channel.edge)].form
        found[source] = HarnessInput(channel.id, form, function, graph.steps[source].assigner)
    return tuple(each for _, each in sorted(found.items()))


def deliveries(inputs: tuple[HarnessInput, ...], elements: Iterable[Given]) -> Iterator[Delivered]:
    """Yields elements as a slot delivers them, neighbouring rows of an input together."""
    rows: list[Any] = []
    of = 0
    for number, kind, content in (*elements, Given(-1, ElementKind.END, None)):
        if rows and (number != of or kind is not ElementKind.ROWS):
            payload = inputs[of].encoded(rows)
            yield Delivered(inputs[of].channel, ElementKind.ROWS, len(rows), 0, CheckpointId(0), payload)
            rows = []
        if kind is ElementKind.ROWS:
            rows.append(content)
            of = number
        elif number >= 0:
            is_watermark = kind is ElementKind.WATERMARK
            payload = encode_watermark(content) if is_watermark else b""
            checkpoint = CheckpointId(0 if is_watermark else content)
            yield Delivered(inputs[number].channel, kind, 1, 0, checkpoint, payload)
