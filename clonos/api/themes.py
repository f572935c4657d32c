"""Base of the themes of ``Stream`` and ``KeyedStream``, the classes that have their methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clonos.api.step import StepInput
from clonos.api.steps import GraphBuilder

if TYPE_CHECKING:
    from clonos.api.stream import Stream


class Theme(GraphBuilder):
    """Methods that add steps of one kind and return streams."""

    def _stream(self, inputs: tuple[StepInput, ...]) -> Stream[Any]:
        """Returns the stream of a step's results."""
        from clonos.api.stream import Stream

        return Stream(self._graph, inputs)
