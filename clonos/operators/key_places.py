"""Tasks that may have a key which a user has typed: the text itself, or the value whose literal it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from clonos.core.model.plan import Plan
from clonos.core.values.key_encoding import KeyUnsupported
from clonos.core.values.keys import Router


def tasks_of_key(plan: Plan, vertex: int, key: str) -> list[str]:
    """Returns the names of the tasks of a vertex that may have a key."""
    tasks = [task for task in plan.tasks if plan.vertex_of[task] == vertex]
    router = Router(len(tasks), plan.max_parallelism)
    return [plan.task_name(tasks[target]) for target in dict.fromkeys(_targets(router, key))]


def _targets(router: Router, key: str) -> Iterator[int]:
    for each in _values(key):
        try:
            yield router.target(each)
        except (KeyUnsupported, UnicodeEncodeError):
            continue


def _values(key: str) -> Iterator[Any]:
    yield key
    try:
        yield ast.literal_eval(key)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return
