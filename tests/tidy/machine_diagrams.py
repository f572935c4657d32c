"""Draws ``docs/design/machines.md`` from the tables of the machines: ``python -m tests.tidy.machine_diagrams``.

A table of rows says what each machine does with each event; a diagram, where handlers return the next state, to which
states it leads. The arrows are the handlers' return types, which mypy checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from clonos.core.coordinator import (
    checkpoint_machine,
    coordinator,
    failure_detector,
    failure_policy,
    rescale_machine,
    view_machine,
)
from clonos.core.model.machine import Machine
from clonos.core.recovery import recovery_machine
from clonos.core.slot import slot
from tests.tidy.source import ROOT

PAGE = ROOT / "docs" / "design" / "machines.md"

HEAD = """# Machines

Each machine of the core is one table: a row for each pair of state and event that may happen. A pair without a row is
a bug: it raises `InternalError`. This page is drawn from the tables by `python -m tests.tidy.machine_diagrams`; a test
fails when it is stale.

In a table a cell names the handler; `stay` means that the event may come in that state and changes nothing; an empty
cell is a pair that cannot happen. An arrow of a diagram is labelled with the events that may lead along it.
"""

SECTIONS: tuple[tuple[str, str, Machine[Any, Any, Any]], ...] = (
    ("Recovery of a task", "clonos/core/recovery/recovery_machine.py", recovery_machine.MACHINE),
    ("Checkpoints", "clonos/core/coordinator/checkpoint_machine.py", checkpoint_machine.MACHINE),
    (
        "Life of a slot, as the coordinator sees it",
        "clonos/core/coordinator/failure_detector.py",
        failure_detector.MACHINE,
    ),
    ("Views", "clonos/core/coordinator/view_machine.py", view_machine.MACHINE),
    ("Rescale", "clonos/core/coordinator/rescale_machine.py", rescale_machine.MACHINE),
    ("Failure policy", "clonos/core/coordinator/failure_policy.py", failure_policy.MACHINE),
    ("Slot", "clonos/core/slot/slot.py", slot.MACHINE),
    ("Coordinator", "clonos/core/coordinator/coordinator.py", coordinator.MACHINE),
)


def page() -> str:
    """Returns the whole document."""
    parts = [HEAD]
    for title, path, machine in SECTIONS:
        parts.append(f"\n## {title}\n\n[{path}](../../{path})\n")
        parts += [*_diagram(machine), *_rows(machine)]
        if machine is slot.MACHINE:
            parts += _messages()
    return "".join(parts)


def arrows(machine: Machine[Any, Any, Any]) -> dict[tuple[str, str], list[str]]:
    """Returns the events that may lead from one state to another, for each such pair of states."""
    found: dict[tuple[str, str], list[str]] = {}
    for (state, event), handler in machine.table.items():
        for target in _targets(handler):
            if target is not state:
                found.setdefault((state.__name__, target.__name__), []).append(event.__name__)
    return found


def _targets(handler: Callable[..., Any]) -> Iterator[type]:
    """Yields the states that a handler may return. A type variable is the state that came in."""
    returned = get_type_hints(handler)["return"]
    if get_origin(returned) is tuple:
        returned = get_args(returned)[0]
    for target in get_args(returned) if isinstance(returned, UnionType) or get_args(returned) else (returned,):
        if not isinstance(target, TypeVar) and isinstance(target, type) and target is not type(None):
            yield target


def _diagram(machine: Machine[Any, Any, Any]) -> list[str]:
    found = arrows(machine)
    if not found:
        return []
    lines = [f"    {before} --> {after}: {', '.join(events)}\n" for (before, after), events in found.items()]
    return ["\n```mermaid\nstateDiagram-v2\n", *lines, "```\n"]


def _rows(machine: Machine[Any, Any, Any]) -> list[str]:
    states = list(dict.fromkeys(state for state, _ in machine.table))
    events = list(dict.fromkeys(event for _, event in machine.table))
    lines = [
        f"| event | {' | '.join(state.__name__ for state in states)} |\n",
        "| --- |" + " --- |" * len(states) + "\n",
    ]
    for event in events:
        cells = [_cell(machine.table.get((state, event))) for state in states]
        lines.append(f"| `{event.__name__}` | {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |"))
    return ["\n", *lines]


def _messages() -> list[str]:
    lines = ["\nIts messages:\n\n", "| message | from a slot | from the coordinator |\n", "| --- | --- | --- |\n"]
    for kind in (*slot.FROM_SLOTS, *slot.FROM_COORDINATOR):
        cells = [_cell(table.get(kind)) for table in (slot.FROM_SLOTS, slot.FROM_COORDINATOR)]
        lines.append(f"| `{kind.__name__}` | {' | '.join(cells)} |\n".replace("|  |", "| |"))
    return lines


def _cell(handler: Callable[..., Any] | None) -> str:
    name = "" if handler is None else handler.__name__.lstrip("_")
    return name if name in ("", "stay") else f"`{name}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
