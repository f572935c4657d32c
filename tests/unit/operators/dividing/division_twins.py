"""Dumb twins of divided state: tasks as lists of entries, and who owns a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clonos.core.values.key_encoding import encode_key
from clonos.core.values.keys import groups_of_task, key_group
from clonos.operators.state.declared_state import DeclaredState
from clonos.operators.state.dividing import Division
from clonos.operators.state.keyed_state import StateBackend, StateImage


def owner_of(key: Any, parallelism: int, max_parallelism: int) -> int:
    """The task that has a key of the user, by the rule of the docs."""
    group = key_group(encode_key(key), max_parallelism)
    return next(task for task in range(parallelism) if group in groups_of_task(task, parallelism, max_parallelism))


def moved(tasks: Sequence[Iterable[Any]], key: Callable[[Any], Any], parallelism: int, most: int) -> list[list[Any]]:
    """The entries of each new task: those of the old tasks one after the other."""
    found: list[list[Any]] = [[] for _ in range(parallelism)]
    for task in tasks:
        for entry in task:
            found[owner_of(key(entry), parallelism, most)].append(entry)
    return found


def divided(declared: DeclaredState, old: Sequence[Sequence[bytes]], parallelism: int, most: int) -> list[StateImage]:
    """The images of all new tasks, from the pieces of the old ones."""
    found = []
    for task in range(parallelism):
        division = Division(declared, task, parallelism, most)
        for index, pieces in enumerate(old):
            image = division.new_image(index, len(old))
            for piece in pieces:
                image.apply(piece)
            division.add(image)
        found.append(division.result())
    return found


def whole(pieces: Sequence[bytes]) -> StateImage:
    """The image of a task."""
    image = StateImage()
    for piece in pieces:
        image.apply(piece)
    return image


def piece_of(image: StateImage) -> bytes:
    """All state of a task as one piece; the image is used up."""
    return StateBackend(image).changes(full=True)
