"""Mermaid flowchart of an explanation: a box per step, a frame per vertex, an arrow per exchange."""

from __future__ import annotations

from collections.abc import Iterator

from clonos.api.plan.explanation import Explanation, InputInfo, StepInfo
from clonos.api.plan.step_tree import key_text, step_text

ESCAPES = str.maketrans({'"': "#quot;", "<": "#lt;", ">": "#gt;", "#": "#35;", "\n": " "})


def explanation_mermaid(plan: Explanation) -> str:
    """Formats an explanation as a flowchart."""
    numbers = {step.name: number for number, step in enumerate(plan.steps)}
    lines = ["flowchart LR"]
    for number, vertex in enumerate(plan.vertices):
        tasks = f"{vertex.tasks} {'task' if vertex.tasks == 1 else 'tasks'}"
        lines.append(f'    subgraph v{number}["{_escaped(vertex.name)} ({tasks})"]')
        inside = [step for step in plan.steps if step.vertex == vertex.name]
        lines += [f"        {_box(step, numbers[step.name])}" for step in inside]
        if not inside:
            lines.append(f'        e{number}[("{_escaped(vertex.name)}")]')
        lines.append("    end")
    for step in plan.steps:
        lines += [f"    s{numbers[each.step]} {_arrow(each)} s{numbers[step.name]}" for each in step.inputs]
    lines += [f"    v{source} -.->|errors| e{target}" for source, target in _error_edges(plan)]
    return "\n".join(lines)


def _box(step: StepInfo, number: int) -> str:
    opening, closing = "[", "]"
    if step.source is not None:
        opening, closing = "([", "])"
    elif step.sink is not None:
        opening, closing = "[(", ")]"
    kind = step.kind if step.source or step.sink else step_text(step)
    return f's{number}{opening}"{_escaped(step.name)}<br>{_escaped(kind)}"{closing}'


def _arrow(step_input: InputInfo) -> str:
    if step_input.key is not None:
        return f'-->|"{_escaped(key_text(step_input.key))}"|'
    if step_input.side_output:
        return f'-->|"side output {_escaped(step_input.side_output)}"|'
    return "-->" if step_input.exchange == "forward" else f"-->|{step_input.exchange}|"


def _error_edges(plan: Explanation) -> Iterator[tuple[int, int]]:
    """Yields the numbers of the vertices of each edge to the error output, which is no step."""
    numbers = {vertex.name: number for number, vertex in enumerate(plan.vertices)}
    targets = {vertex.name for vertex in plan.vertices if vertex.takes_errors}
    for each in plan.exchanges:
        if each.target is not None and each.target in targets:
            yield numbers[each.source], numbers[each.target]


def _escaped(text: str) -> str:
    return text.translate(ESCAPES)
