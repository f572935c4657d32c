"""Picture of a job's graph as SVG, for notebooks: a box for each step, a line for each exchange of records."""

from __future__ import annotations

from html import escape
from typing import Final

from clonos.api.step import Exchange, StepInput
from clonos.api.step_graph import StepGraph

BOX_WIDTH: Final = 130
BOX_HEIGHT: Final = 30
GAP_WIDTH: Final = 80
GAP_HEIGHT: Final = 16
NAME_CHARACTERS_MAX: Final = 18

STYLE: Final = "font-family:sans-serif;font-size:12px"
COLUMN: Final = BOX_WIDTH + GAP_WIDTH
ROW: Final = BOX_HEIGHT + GAP_HEIGHT


def graph_svg(graph: StepGraph) -> str:
    """Returns the graph as SVG, from the sources on the left to the sinks on the right."""
    places = _places(graph)
    width = max((x for x, _ in places.values()), default=0) * COLUMN + BOX_WIDTH + 2
    height = max((y for _, y in places.values()), default=0) * ROW + BOX_HEIGHT + 2
    lines = [
        _line(places[step_input.step], places[step.number], _label(step_input))
        for step in graph.steps
        for step_input in step.inputs
    ]
    boxes = [_box(places[step.number], step.name, step.parallelism) for step in graph.steps]
    title = f"<title>{escape(graph.name)}</title>"
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" style="{STYLE}">'
    return "\n".join([opening, title, *lines, *boxes, "</svg>"])


def _places(graph: StepGraph) -> dict[int, tuple[int, int]]:
    """Returns column and row of each step: the column is its distance from the sources, the row counts within it."""
    columns: dict[int, int] = {}
    filled: dict[int, int] = {}
    places = {}
    for step in graph.steps:
        column = max((columns[each.step] + 1 for each in step.inputs), default=0)
        columns[step.number] = column
        row = filled.get(column, 0)
        filled[column] = row + 1
        places[step.number] = column, row
    return places


def _label(step_input: StepInput) -> str:
    if step_input.key is not None:
        return step_input.key.name
    return "" if step_input.exchange is Exchange.FORWARD else step_input.exchange.value


def _line(start: tuple[int, int], end: tuple[int, int], label: str) -> str:
    x1, y1 = start[0] * COLUMN + BOX_WIDTH, start[1] * ROW + BOX_HEIGHT // 2
    x2, y2 = end[0] * COLUMN, end[1] * ROW + BOX_HEIGHT // 2
    text = f'<text x="{x2 - 4}" y="{y2 - 4}" text-anchor="end" fill="gray">{escape(label)}</text>' if label else ""
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="gray"/>{text}'


def _box(place: tuple[int, int], name: str, parallelism: int | None) -> str:
    x, y = place[0] * COLUMN + 1, place[1] * ROW + 1
    shown = name if len(name) <= NAME_CHARACTERS_MAX else f"{name[: NAME_CHARACTERS_MAX - 1]}\u2026"
    tasks = "" if parallelism is None else f" \u00d7{parallelism}"
    return (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH - 2}" height="{BOX_HEIGHT}" rx="4" fill="none"'
        ' stroke="currentColor"/>'
        f'<text x="{x + BOX_WIDTH // 2}" y="{y + 19}" text-anchor="middle" fill="currentColor">'
        f"{escape(shown)}{tasks}</text>"
    )
