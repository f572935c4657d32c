"""Texts about the parts of a step: functions, keys, connectors, timestamps, and why columns become rows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from clonos.api.columns.described_columns import form_reason
from clonos.api.columns.forms import former_of
from clonos.api.key_by import KeyBy, fields_text
from clonos.api.step import Step, StepInput
from clonos.operators.event_time.durations import NANOSECONDS_PER_MILLISECOND, duration_text
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.event_time.watermark_strategies import BoundedOutOfOrderness
from clonos.operators.operator import Operator
from clonos.operators.windows.window_aggregates import WindowAggregate

CONNECTOR_CHARACTERS_MAX: Final = 200
LIBRARY: Final = "clonos."
OPTIONAL: Final = frozenset({"within", "tolerance", "field"})
"""Properties of state that a step may be without."""

_NANOSECONDS: Final = re.compile(r"(-?\d+(?: to -?\d+)?) ns\b")


def function_text(function: Any) -> str:
    """Returns the name of a function or a class, and where it is defined: ``parse at word_count.py:12``."""
    while isinstance(function, partial):
        function = function.func
    name = str(getattr(function, "__qualname__", None) or type(function).__qualname__).rpartition("<locals>.")[2]
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    return ("lambda" if name == "<lambda>" else name) + place


def key_text(key_by: KeyBy) -> str:
    """Returns what gives the key: fields, or a function and its place."""
    return fields_text(key_by.fields) if key_by.fields else function_text(key_by.key)


def connector_text(connector: object) -> str:
    """Returns how a source or a sink was created; for a class of the user, its name."""
    cls = type(connector)
    is_known = cls.__module__.startswith(LIBRARY) and cls.__repr__ is not object.__repr__
    return repr(connector)[:CONNECTOR_CHARACTERS_MAX] if is_known else cls.__qualname__


def timestamps_text(assigner: TimestampAssigner) -> str:
    """Returns where timestamps come from."""
    if callable(assigner.of):
        return function_text(assigner.of)
    local = "" if assigner.local is None else f"; without a UTC offset: {assigner.local.text()}"
    return f"the field {assigner.of!r} (if it is a number: {assigner.unit}{local})"


def watermarks_text(assigner: TimestampAssigner, place: str) -> str:
    """Returns which watermarks follow from timestamps. ``place``: what each of them is of, a split or a task."""
    strategy = assigner.strategy
    if isinstance(strategy, BoundedOutOfOrderness):
        how = f"{duration_text(strategy.bound_ns)} behind the latest" if strategy.bound_ns else "at the latest"
    else:
        how = f"by {type(strategy).__qualname__}"
    idle = f", idle after {duration_text(assigner.idle_after_ns)}" if assigner.idle_after_ns else ""
    return f"{how} timestamp of a {place}, every {duration_text(assigner.every_ns)}{idle}"


def property_text(name: str, text: str) -> str:
    """Returns a property of state as ``explain`` shows it: times with units; "" if it is not given.

    A resume compares the texts that the plan has, which are in nanoseconds.
    """
    if name in OPTIONAL and text.lower() == "none":
        return ""
    if name == "within" and text.isdigit():
        return duration_text(int(text))
    return _NANOSECONDS.sub(lambda found: " to ".join(_signed(int(each)) for each in found[1].split(" to ")), text)


def _signed(nanoseconds: int) -> str:
    if not nanoseconds:
        return "0s"
    if nanoseconds % NANOSECONDS_PER_MILLISECOND:
        return f"{nanoseconds}ns"
    return f"{'-' if nanoseconds < 0 else ''}{duration_text(abs(nanoseconds))}"


def reason_for_rows(step_input: StepInput, steps: Sequence[Step]) -> str:
    """Returns why an input of a step gives rows although its own input gives columns; "" if that is rows, too."""
    return "" if step_input.tag else row_reason_of(steps[step_input.step], steps)


def row_reason_of(step: Step, steps: Sequence[Step]) -> str:
    """Returns why a step gives rows although its input gives columns; "" if it gives columns, or gets rows itself."""
    if step.source is not None or not any(map(partial(_is_of_columns, steps), step.inputs)):
        return ""
    keys = tuple(each for each in step.inputs if each.key is not None)
    return row_reason(step, steps, keys, False)


def sink_reason(step: Step, steps: Sequence[Step]) -> str:
    """Returns why a sink of columns writes rows: those of the step before it have another form than their columns."""
    for each in step.inputs:
        former = former_of(steps, each)
        if former is None or former.form is None or former.form.is_written:
            continue
        if reason := row_reason_of(former, steps):
            return f"{former.name} works on rows, because {reason}"
        return f"it writes the rows that {former.name} gives; put select(...) in front of it for columns"
    return ""


def _is_of_columns(steps: Sequence[Step], step_input: StepInput) -> bool:
    return steps[step_input.step].emits_columns and not step_input.tag


def row_reason(step: Step, steps: Sequence[Step], keys: tuple[StepInput, ...], is_immediate: bool) -> str:
    """Returns why a step that gets columns turns them into rows; "" if it works on them.

    ``keys``: its inputs with a key. ``is_immediate``: it is an immediate sink without columns.
    """
    if step.form is not None and (reason := form_reason(step.form, step, steps)):
        return reason
    if step.emits_columns or (step.form is not None and not step.functions):
        return ""
    for each in keys:
        if each.key is not None and not each.key.fields:
            return f'{each.key.name} calls {key_text(each.key)} with each row; name a column instead: key_by("...")'
    if is_immediate:
        return "its sink writes rows"
    if step.sink is not None:
        return ""
    if step.functions:
        return f"it calls {function_text(step.functions[0])} with each row"
    if step.row_reason:
        return step.row_reason
    classes = list(_classes(step.make))
    method = "keyed_columns" if keys else "columns"
    operators = [cls for cls in classes if issubclass(cls, Operator)]
    has_kind_of_rows = any(getattr(cls, "takes_columns", True) is False for cls in classes if cls not in operators)
    if has_kind_of_rows or all(getattr(cls, method) is getattr(Operator, method) for cls in operators):
        return "it works on rows"
    if any(issubclass(cls, WindowAggregate) and cls.add_columns is WindowAggregate.add_columns for cls in classes):
        return "its aggregate works on rows"
    return ""


def _classes(make: Callable[[], Operator] | None) -> Iterator[type]:
    """Yields the class of a step's operator and those of the arguments with which it is created."""
    while isinstance(make, partial):
        yield from map(type, make.args)
        make = make.func
    if isinstance(make, type):
        yield make
