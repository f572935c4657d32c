"""The walk through the user's code: from a function of a step to all functions that it may run, in any module."""

from __future__ import annotations

import logging
from collections import deque
from types import CodeType
from typing import Final

from clonos.api.checks.code.code_rules import Finding, look_at, look_at_frames
from clonos.api.checks.code.code_scope import CodeScope, Reached
from clonos.api.checks.code.function_source import source_of
from clonos.api.checks.code.replacements import (
    ATTRIBUTES,
    CONTAINERS_CHANGED,
    ENCLOSING,
    GLOBALS,
    ITERATORS,
    THREADS,
    UNDECLARED_EFFECT,
)

logger = logging.getLogger("clonos.check")

COUNTED: Final = frozenset({GLOBALS, ENCLOSING, ATTRIBUTES, CONTAINERS_CHANGED, ITERATORS, UNDECLARED_EFFECT})
"""What a step whose results are recorded must not do either."""

FUNCTIONS_MAX: Final = 500
"""Functions that are followed from one function of a step."""


def findings_from(
    start: Reached,
    *,
    is_recorded: bool = False,
    has_effects: bool = False,
    intercepts: bool = False,
    logs_calls: bool = False,
    of_frames: bool = False,
    only: str = "",
) -> list[Finding]:
    """Returns what a function does, and what the functions of the user do that it may run, to any depth. What a comment
    silences is marked.

    ``is_recorded``: its result is recorded, so it may read clocks and make calls. ``has_effects``: its step declares
    effects. ``intercepts``: its step records clocks and clients of libraries. ``logs_calls``: each call inside is
    recorded and found again by what it asks, so it may begin threads. ``of_frames``: only what is wrong with a batch
    that is a part of the records. ``only``: the first characters of the codes that are looked for.
    """
    look = look_at_frames if of_frames else look_at
    found: dict[tuple[str, int, int], Finding] = {}
    seen: set[tuple[CodeType, bool]] = set()
    waiting, silent = deque([start]), deque[Reached]()
    while waiting or silent:  # what is near comes first, and what only silent functions run comes last
        is_silent, reached = not waiting, (waiting or silent).popleft()
        identity = (reached.function.__code__, reached.is_retained)
        source = None if identity in seen or len(seen) > FUNCTIONS_MAX else source_of(reached.function)
        seen.add(identity)
        if source is None:
            continue
        looked = look(CodeScope(reached, source.node))
        (silent if is_silent or source.is_silent("") else waiting).extend(looked.reached)
        helper = "" if reached.function is start.function else source.name
        for node, what, replacement in looked.findings:
            is_allowed = has_effects and replacement.code == UNDECLARED_EFFECT
            is_recorded_there = replacement.is_intercepted_inside if logs_calls else replacement.is_intercepted
            is_allowed = is_allowed or (intercepts and is_recorded_there)
            is_allowed = is_allowed or (logs_calls and replacement.code == THREADS)
            is_allowed = is_allowed or not replacement.code.startswith(only)
            if is_allowed or (is_recorded and replacement.code not in COUNTED):
                continue
            is_silenced = is_silent or source.is_silent(replacement.code)
            place = (getattr(node, "lineno", source.line), getattr(node, "col_offset", 0) + 1)
            finding = Finding(what, replacement, source.file, *place, helper, is_silenced)
            found.setdefault((finding.text, *place), finding)
    return list(found.values())
