"""Tree of the steps of a job as text: a step stands below what it reads, and branches where several steps read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from clonos.api.plan.explanation import Explanation, InputInfo, KeyInfo, StepInfo

PLAIN: Final = frozenset({"forward", "hash"})
"""Exchanges that a tree need not name: the usual one, and that of a key, which has a line of its own."""


@dataclass(slots=True)
class _Node:
    text: str
    children: list[_Node] = field(default_factory=list)


def step_text(step: StepInfo) -> str:
    """Returns the kind of a step with its functions, or its connector."""
    connector = step.source or step.sink
    if connector is not None:
        return f"{step.kind} {connector.connector}"
    window = step.state.properties.get("window", "") if step.state is not None else ""
    return " ".join(filter(None, (step.kind, window, ", ".join(step.functions))))


def key_text(key: KeyInfo) -> str:
    """Returns what a ``key_by`` partitions by."""
    return f"key_by {key.by}"


def tree_lines(plan: Explanation) -> Iterator[tuple[str, str]]:
    """Yields each line of the tree: its indentation, and its text.

    A step with several inputs stands below the last of them; the others say that it follows.
    """
    builder = _Builder(plan)
    for step in plan.steps:
        if step.source is not None:
            yield from _lines(builder.node(step), "", "")


class _Builder:
    def __init__(self, plan: Explanation) -> None:
        self._steps = plan.steps
        self._inputs_left = Counter({step.name: len(step.inputs) for step in plan.steps})

    def node(self, step: StepInfo) -> _Node:
        node = _Node(f"{step.name}: {step_text(step)}")
        by_key: dict[str, _Node] = {}
        for reader in self._steps:
            for each in reader.inputs:
                if each.step != step.name:
                    continue
                parent = node
                if each.key is not None:
                    found = by_key.get(each.key.name)
                    parent = found or _Node(f"{each.key.name}: {key_text(each.key)}")
                    if found is None:
                        by_key[each.key.name] = parent
                        node.children.append(parent)
                parent.children.append(self._reader(reader, each))
        return node

    def _reader(self, reader: StepInfo, of: InputInfo) -> _Node:
        self._inputs_left[reader.name] -= 1
        if self._inputs_left[reader.name] > 0:
            node = _Node(f"{reader.name}: follows below, with its other inputs")
        else:
            node = self.node(reader)
        if of.exchange not in PLAIN:
            node.text += f" ({of.exchange})"
        if of.side_output:
            node.text += f" (side output {of.side_output})"
        return node


def _lines(node: _Node, first: str, rest: str) -> Iterator[tuple[str, str]]:
    """Yields the lines of a node: ``first`` indents its own, ``rest`` those of the nodes below it."""
    yield first, node.text
    for index, child in enumerate(node.children):
        if len(node.children) == 1:
            yield from _lines(child, rest, rest)
        elif index < len(node.children) - 1:
            yield from _lines(child, f"{rest}├─ ", f"{rest}│  ")
        else:
            yield from _lines(child, f"{rest}└─ ", f"{rest}   ")
