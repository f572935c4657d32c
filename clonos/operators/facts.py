"""Facts of a step: what the plan asks of an operator, stated once, beside its class.

A fact that holds whatever the arguments of an operator are is an attribute of its class. What depends on them, or on
the inputs of the step, comes from a classmethod ``facts`` of the class, or from a function beside several classes.
Methods of streams name the operator and its arguments, and the graph asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import starmap, zip_longest
from typing import Any, Final, NamedTuple

from clonos.expressions.stages import Stage
from clonos.operators.aggregates.aggregate import UserFunction
from clonos.operators.columnar.column_form import ColumnForm
from clonos.operators.emission_times import Emission
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import Operator

Make = Callable[[], Operator]
"""Creates an operator."""


class KnownInputs(NamedTuple):
    """Inputs of a step as far as the plan knows them when it is added.

    - ``step``: name of the step. ``keys``: columns of the key of each side; () of a side without them.
    - ``has_columns``: all inputs give columns. ``has_times``: the records of all of them have timestamps.
    - ``timestamp_column``: column of the timestamps of the first input.
    - ``schemas``: returns the schemas of those inputs whose columns are known.
    """

    step: str
    keys: tuple[tuple[str, ...], ...]
    has_columns: bool
    has_times: bool
    timestamp_column: TimestampColumn | None
    schemas: Callable[[], list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Description of a step for the plan, beside its name and its inputs.

    Those that ``Operator`` has too are explained there.

    - ``make``: creates its operator over rows; None for sources and sinks, whose operators the compiler makes.
    - ``calls``: the functions of the user that it calls, or its process function.
    - ``has_times``: its results have timestamps of their own; ``keeps_times``: those of its records. ``assigner``: it
      gives them by this. Those in columns are in ``timestamp_column``.
    - ``gives_pairs``: its results are tuples of a record of each side.
    - ``names_columns``: it uses columns by their names.
    - ``splits``: makes the operator that aggregates its rows in parts in front of an exchange by key; None without it.
    - ``form``: what it needs of columns to work on them. ``row_reason``: why it works on rows though it gets columns,
      "" if its operator or its form shows that. ``columns``: the schema that it declares for its results.
    - ``emits_at_end``: it emits when its input has ended, not before. ``follows_clock``: its windows follow the clock
      although nobody asked for it. ``flush``: when it passes rows on to the sink after it.
    - ``stage``: what it does to columns, if it is such a step.
    """

    make: Make | None = None
    splits: Make | None = None
    calls: tuple[UserFunction, ...] = ()
    runs_user_code: bool = False
    emits_columns: bool = False
    requires_columns: bool = False
    is_one_to_one: bool = False
    selects_rows: bool = False
    has_calls: bool = False
    logs_calls: bool = False
    is_per_record: bool = False
    ignores_order: bool = False
    passes_records: bool = False
    gives_one_at_most: bool = False
    may_be_in_place: bool = False
    takes_untimed: bool = False
    takes_schema: bool = False
    gives_pairs: bool = False
    breaks_order: str = ""
    key_field: str | None = None
    state: tuple[tuple[str, str], ...] | None = None
    emits_at_end: bool = False
    side_tags: tuple[str, ...] | None = ()
    has_times: bool = False
    keeps_times: bool = True
    timestamp_column: TimestampColumn | None = None
    assigner: TimestampAssigner | None = None
    flush: Emission | None = None
    stage: Stage | None = None
    follows_clock: bool = False
    reads: tuple[str, ...] | None = None
    names_columns: bool = False
    row_reason: str = ""
    form: ColumnForm | None = None
    columns: Any = None


OF_CLASSES: Final = frozenset(each.name for each in fields(Facts)) & frozenset(Operator.__annotations__)
"""Facts that are attributes of the classes of operators."""

Definition = Callable[[KnownInputs], Facts]
"""Operator with its arguments, which describes itself for the inputs of a step."""


def plain(operator: Callable[..., Operator], *functions: Any) -> Definition:
    """Returns the definition of an operator whose class says everything.

    ``operator``: the class with its arguments; one with state gets the name of its step in front of them.
    ``functions``: those of the user.
    """
    has_name = class_of(operator).state is not None
    return lambda given: facts_of(partial(operator, given.step) if has_name else operator, given, *functions)


def facts_of(make: Make, given: KnownInputs, *functions: Any) -> Facts:
    """Returns what the class of an operator says of each step that it makes. ``functions``: those of the user."""
    cls = class_of(make)
    values = {name: getattr(cls, name) for name in OF_CLASSES}
    values["emits_columns"] = cls.emits_columns or (cls.passes_columns and given.has_columns)
    calls = starmap(UserFunction, zip_longest(functions, cls.called_with[: len(functions)]))
    return Facts(**values | {"make": make, "calls": tuple(calls)})


def calls_of(assigner: TimestampAssigner | None) -> tuple[UserFunction, ...]:
    """Returns the functions of the user that give timestamps and watermarks."""
    return () if assigner is None else tuple(UserFunction(each, None) for each in assigner.functions)


def with_form(facts: Facts, form: ColumnForm) -> Facts:
    """Returns the facts of a step that works on columns where it can."""
    return replace(facts, form=form, emits_columns=form.emits_columns, row_reason="")


def class_of(make: Callable[..., Operator]) -> type[Operator]:
    """Returns the class of the operators that a function makes."""
    while isinstance(make, partial):
        make = make.func
    assert isinstance(make, type), make
    return make
