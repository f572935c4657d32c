"""Look at the functions of a job when it is compiled: what a replay would not repeat gets one warning per function.

Names are resolved through the closure, the globals and the builtins of a function, so an alias is recognised and a
function of the same name is not confused with it. Functions of the user that it calls are looked at too. A comment
``# clonos: ok`` with a reason, inside a function, silences its warning. A warning never stops a job.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

from clonos.api.checks.code.code_rules import Finding
from clonos.api.checks.code.code_scope import HOLDERS, UNKNOWN, Reached, full_name, is_of_library, is_user_function
from clonos.api.checks.code.code_walk import findings_from
from clonos.api.checks.code.function_source import LAMBDA, FunctionSource, source_of
from clonos.api.checks.code.replacements import (
    CONTAINERS_CHANGED,
    FRAMES,
    KEEP_IN_STATE,
    MUTATORS,
    THREADS,
    UNDECLARED_EFFECT,
    Replacement,
    replacement_of,
)
from clonos.api.checks.function_checks import EMITTING_METHODS
from clonos.api.step import Step
from clonos.api.step_graph import StepGraph
from clonos.core.model.suspect import Suspect, ranked

logger = logging.getLogger("clonos.check")

FINDINGS_MAX: Final = 4
"""Findings that one warning names."""

NOT_REPEATED: Final = "A replay would not repeat it"
ONE_BATCH: Final = "It sees one batch at a time, and where batches are cut is not fixed"

_warned: set[CodeType | str] = set()
"""Functions that were warned of in this process, so that a graph that is compiled again stays silent."""


class CheckedFunction(NamedTuple):
    """Function of a step, or something else that it calls, and what was found.

    ``identity``: what tells it apart from others. ``source``: None for a function that has none, such as a method of a
    list. ``runs_in``: the step in whose place it runs: a key is taken before its step.
    """

    step: str
    identity: CodeType | str
    source: FunctionSource | None
    qualname: str
    findings: list[Finding]
    runs_in: str

    @property
    def shown_name(self) -> str:
        """Name of the function without those of functions around it."""
        is_lambda = self.source is not None and self.source.name == LAMBDA
        return LAMBDA if is_lambda else self.qualname.rpartition("<locals>.")[2]


def warn_of_code(looked: Iterable[CheckedFunction]) -> None:
    """Logs one warning per function that does something a replay would not repeat."""
    for identity, text in _warnings(_not_silenced(looked)):
        if identity not in _warned:
            _warned.add(identity)
            logger.warning("%s", text)


def warnings_of(graph: StepGraph) -> Iterator[tuple[CodeType | str, str]]:
    """Yields the warnings about the functions of a graph, each with the identity of the function."""
    return _warnings(checked_functions(graph))


def _warnings(checked_ones: Iterable[CheckedFunction]) -> Iterator[tuple[CodeType | str, str]]:
    for checked in checked_ones:
        text = _warning(checked)
        yield text if checked.source is None or _is_of_frames(checked) else checked.identity, text


def checked_functions(graph: StepGraph) -> Iterator[CheckedFunction]:
    """Yields the functions of a graph in which something was found that no comment silences, in the order of its
    steps."""
    return _not_silenced(look_at_functions(graph))


def _not_silenced(looked: Iterable[CheckedFunction]) -> Iterator[CheckedFunction]:
    for checked in looked:
        if found := [each for each in checked.findings if not each.is_silenced]:
            yield checked._replace(findings=found)


def suspects_of(looked: Iterable[CheckedFunction]) -> dict[str, tuple[Suspect, ...]]:
    """Returns what may be the cause if a step does not repeat itself, by the step in whose place it runs, the likeliest
    first."""
    found: dict[str, list[Suspect]] = {}
    for checked in looked:
        for each in checked.findings:
            place = f"{Path(each.file).name}:{each.line}" if each.line else f"the step {checked.step}"
            suspect = Suspect(each.code, place, each.text, each.replacement.advice, each.is_silenced)
            found.setdefault(checked.runs_in, []).append(suspect)
    return {step: suspects for step, each in found.items() if (suspects := ranked(each))}


def look_at_functions(graph: StepGraph) -> Iterator[CheckedFunction]:
    """Yields the functions of a graph in which something was found, silenced or not, in the order of its steps."""
    for step in graph.steps:
        own = [(function, step.name) for function in step.functions]
        keys = [each.key for each in step.inputs if each.key is not None and callable(each.key.key)]
        for function, runs_in in (*own, *((key.key, key.name) for key in keys)):
            for checked in _look_at(step, function):
                yield checked._replace(runs_in=runs_in)


def _look_at(step: Step, function: Any) -> Iterator[CheckedFunction]:
    is_called = step.has_calls and function is step.functions[0]
    is_recorded, logs_calls = is_called and not step.logs_calls, is_called and step.logs_calls
    for reached in _functions_of(function, is_process=step.kind == "process"):
        yield from _checked(step, reached, is_recorded=is_recorded, logs_calls=logs_calls)
        if step.kind == "map_batches":
            yield from _checked(step, reached, of_frames=True)
    yield from _without_source(step, function, is_recorded=is_recorded)
    opened = _opened_by(function) if step.kind == "process" else None
    if opened is not None:
        yield from _checked(step, opened, only=THREADS)


def _checked(
    step: Step,
    reached: Reached,
    *,
    is_recorded: bool = False,
    logs_calls: bool = False,
    of_frames: bool = False,
    only: str = "",
) -> Iterator[CheckedFunction]:
    function = reached.function
    try:
        found = findings_from(
            reached,
            is_recorded=is_recorded,
            has_effects=step.has_effects,
            intercepts=bool(step.intercepts),
            logs_calls=logs_calls,
            of_frames=of_frames,
            only=only,
        )
        source = source_of(function)
    except Exception as error:  # noqa: BLE001  objects of the user may raise anything, and a look never stops a job
        logger.debug("%s of the step %s was not looked at: %r", function.__qualname__, step.name, error)
        return
    if found and source is not None:
        yield CheckedFunction(step.name, function.__code__, source, function.__qualname__, found, step.name)


def _without_source(step: Step, function: Any, *, is_recorded: bool) -> Iterator[CheckedFunction]:
    """Yields what is wrong with a function that the step gets as it is, such as ``out.append`` or ``random.random``."""
    name = full_name(function)
    found = []
    if what := held_container(function):
        found.append((f"changes {what}", Replacement(CONTAINERS_CHANGED, _given(step.kind))))
    replacement = None if is_recorded else replacement_of(name, is_called=True, arguments=1)
    if replacement is not None and not (step.intercepts and replacement.is_intercepted):
        found.append((f"calls {name}", replacement))
    for what, given in found:
        yield CheckedFunction(step.name, name, None, name, [Finding(what, given, "", 0, 0)], step.name)


def held_container(function: Any) -> str:
    """Returns which container a function of the user changes that is a method of it, such as ``out.append``."""
    while isinstance(function, partial):
        function = function.func
    holder, method = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if isinstance(holder, HOLDERS) and method in (*MUTATORS, "put", "put_nowait", "__setitem__"):
        return f"a {type(holder).__name__} by {method}"
    return ""


def _given(kind: str) -> str:
    results = " The results of the step are what the method returns, such as None." if kind == "map" else ""
    return (
        f"Each process has a copy of it, and {KEEP_IN_STATE}. To get the rows, end the stream with .sink(rows), where"
        f" rows = collect().{results}"
    )


def _warning(checked: CheckedFunction) -> str:
    codes = ", ".join(dict.fromkeys(each.code for each in checked.findings))
    source = checked.source
    if source is None:
        (finding,) = checked.findings
        if finding.code == CONTAINERS_CHANGED:
            return f"the step {checked.step} {finding.what}. {finding.replacement.advice}"
        return f"the step {checked.step} {finding.what} ({finding.replacement.advice}). {NOT_REPEATED}."
    needs = "needs a reason after it" if source.has_silence else "with a reason, in the function, silences this"
    where = f"{Path(source.file).name}:{source.line}"
    what = f"{checked.shown_name} of the step {checked.step} {_parts_of(checked.findings)}"
    why = "" if codes == UNDECLARED_EFFECT else f" {ONE_BATCH if _is_of_frames(checked) else NOT_REPEATED}."
    return f"{where}: {what}.{why} A comment # clonos: ok {codes} {needs}."


def _is_of_frames(checked: CheckedFunction) -> bool:
    return checked.findings[0].code == FRAMES


def _parts_of(found: list[Finding]) -> str:
    """Joins findings: those with the same advice together, at most ``FINDINGS_MAX`` of them."""
    distinct = list(dict.fromkeys((each.replacement.advice, each.text) for each in found))
    by_advice: dict[str, list[str]] = {}
    for advice, text in distinct[:FINDINGS_MAX]:
        by_advice.setdefault(advice, []).append(text)
    parts = [f"{' and '.join(whats)} ({advice})" for advice, whats in by_advice.items()]
    if len(distinct) > FINDINGS_MAX:
        parts.append(f"and {len(distinct) - FINDINGS_MAX} more")
    return "; ".join(parts)


def _opened_by(function: Any) -> Reached | None:
    """Returns the ``open`` of a process class of the user's. It may read files, but a thread of it would go on."""
    cls = function if isinstance(function, type) else type(function)
    member = inspect.getattr_static(cls, "open", None)
    return Reached(member, function, True) if isinstance(member, FunctionType) and is_user_function(member) else None


def _functions_of(function: Any, *, is_process: bool) -> Iterator[Reached]:
    """Yields the functions of the user that run when a step calls ``function``, with the owner of each method."""
    if is_process:
        cls = function if isinstance(function, type) else type(function)
        for name in EMITTING_METHODS:
            member = inspect.getattr_static(cls, name, None)
            if isinstance(member, FunctionType) and is_user_function(member):
                yield Reached(member, function, True)
        return
    while isinstance(function, partial):
        function = function.func
    owner: Any = UNKNOWN
    if isinstance(function, MethodType):
        function, owner = function.__func__, function.__self__
    elif not isinstance(function, FunctionType) and not inspect.isroutine(function):
        owner, function = function, inspect.getattr_static(type(function), "__call__", None)
    if is_of_library(function):
        return
    original = inspect.unwrap(function) if callable(function) else function
    for each in dict.fromkeys((function, original)):
        if isinstance(each, FunctionType) and is_user_function(each):
            yield Reached(each, owner, owner is not UNKNOWN)
