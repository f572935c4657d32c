"""Logical graph of a job: its steps in the order in which they were added.

A method of a stream adds a step; a step is never changed and follows all its inputs in the list of steps.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Final, Self, cast

from clonos.api.checks.function_checks import check_function
from clonos.api.checks.hot_standby_rules import check_standby
from clonos.api.checks.wrong_ends import how_to_write
from clonos.api.columns.schemas import known_schema
from clonos.api.common import Common, CommonWithEffects
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import AnySink, AnySource, Step, StepInput, sides_of
from clonos.core.model.plan import PlacementRule
from clonos.operators.connector_contract import ImmediateSink, TransactionalSink
from clonos.operators.facts import Definition, Facts, KnownInputs

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ERRORS_STEP: Final = "errors"


class StepGraph:
    """Description of a job.

    ``limit`` is the number of records of each source without a limit of its own; None: all. ``errors`` is the sink of
    records whose user code raised; None: such a record fails the job. ``file`` is the path of the code that describes
    the job; "" if it is in no file.
    """

    def __init__(self, name: str, *, errors: AnySink | None = None, file: str = "", limit: int | None = None) -> None:
        self.name = _checked_name("the job", name)
        self.limit = limit
        self.file = file
        self.errors: AnySink | None = None
        self._steps: list[Step] = []
        self._names: set[str] = {ERRORS_STEP}
        self.take_rows: Callable[[tuple[StepInput, ...], int], list[Any]] | None = None  # set by the job
        if errors is not None:
            self.check_sink(ERRORS_STEP, errors)
            self.errors = errors

    @property
    def steps(self) -> tuple[Step, ...]:
        """Returns the steps in the order in which they were added."""
        return tuple(self._steps)

    def add(
        self,
        kind: str,
        inputs: tuple[StepInput, ...],
        common: Common,
        definition: Definition | None = None,
        *,
        second_from: int | None = None,
        source: AnySource | None = None,
        sink: AnySink | None = None,
    ) -> Step:
        """Adds a step that reads ``inputs``, those from ``second_from`` on as its second side.

        The operator of ``definition`` says all that the plan knows of it. A sink has none.

        Raises: InvalidJob: the name, the parallelism, the standby or a function of the user cannot be used.
        """
        given, parallelism, standby = common.get("name"), common.get("parallelism"), common.get("standby")
        has_effects = cast(CommonWithEffects, common).get("effects", False)
        intercepts = cast(CommonWithEffects, common).get("intercept")
        name = self.free_name(kind, given)
        known = self._given(name, inputs, second_from)
        facts = Facts() if definition is None else definition(known)
        for function, arguments in facts.calls if kind != "process" else ():
            check_function(kind, given or kind, function, arguments)
        self._names.add(name)
        if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
            raise InvalidJob(
                name, f"has the parallelism {parallelism!r}", "Give the number of tasks: an int of at least 1."
            )
        check_standby(name, standby, has_effects, source)
        known_facts = {each.name: getattr(facts, each.name) for each in fields(facts)}
        if facts.keeps_times:
            known_facts["has_times"] = self.have_same_times(name, inputs) or facts.has_times
            if known_facts["has_times"] and facts.emits_columns and facts.timestamp_column is None:
                known_facts["timestamp_column"] = known.timestamp_column
        step = Step(
            number=len(self._steps),
            name=name,
            is_named=given is not None,
            inputs=inputs,
            source=source,
            sink=sink,
            parallelism=parallelism,
            has_effects=has_effects,
            intercepts=intercepts,
            standby=standby,
            kind=kind,
            second_from=second_from,
            **known_facts,
        )
        self._steps.append(step)
        return step

    def place(self, number: int, rule: PlacementRule) -> None:
        """Sets where the tasks of a step run."""
        self._steps[number] = replace(self._steps[number], rule=rule)

    def gives_columns(self, step_input: StepInput) -> bool:
        """Returns whether an input gives record batches; side outputs give rows."""
        return self._steps[step_input.step].emits_columns and not step_input.tag

    def key_columns(self, inputs: Sequence[StepInput]) -> tuple[str, ...]:
        """Returns the columns of the key of inputs that all give columns and have the same key; else ()."""
        keys = {each.key.fields if each.key is not None and self.gives_columns(each) else () for each in inputs}
        return keys.pop() if len(keys) == 1 else ()

    def have_times(self, inputs: tuple[StepInput, ...]) -> bool:
        """Returns whether the records of all inputs have timestamps."""
        return bool(inputs) and all(self._steps[each.step].has_times for each in inputs)

    def have_same_times(self, name: str, inputs: tuple[StepInput, ...]) -> bool:
        """Returns whether the records of all inputs of the step ``name`` have timestamps, in the same place.

        Raises: InvalidJob: some inputs have them and others do not, or they have them in different columns.
        """
        found = {(self._steps[each.step].has_times, self._steps[each.step].timestamp_column) for each in inputs}
        if len(found) > 1 and any(has_times for has_times, _ in found):
            raise InvalidJob(
                name,
                "joins streams with timestamps in different places, or with and without them",
                "Give each of them timestamps by with_timestamps before union.",
            )
        return any(has_times for has_times, _ in found)

    def reserve_name(self, kind: str, name: str | None) -> str:
        """Reserves a unique name for a step: ``name``, or without one ``kind``, numbered from the second use on.

        Raises: InvalidJob: another step has the name, or it is malformed.
        """
        name = self.free_name(kind, name)
        self._names.add(name)
        return name

    def free_name(self, kind: str, name: str | None) -> str:
        """Returns the name of a new step: the given one, or one made of its kind.

        Raises: InvalidJob: another step has the name, or it is malformed.
        """
        if name is not None:
            _checked_name(f"a {kind} step", name)
            if name in self._names:
                raise InvalidJob(name, "has the name of another step", "Give each step of a job a name of its own.")
        else:
            name = kind
            number = 1
            while name in self._names:
                number += 1
                name = f"{kind}-{number}"
        return name

    def _given(self, step: str, inputs: tuple[StepInput, ...], second_from: int | None) -> KnownInputs:
        return KnownInputs(
            step,
            tuple(map(self.key_columns, sides_of(inputs, second_from))),
            all(map(self.gives_columns, inputs)),
            self.have_times(inputs),
            self._steps[inputs[0].step].timestamp_column if inputs else None,
            lambda: [schema for each in inputs if (schema := known_schema(self._steps, each)) is not None],
        )

    def changed(self, change: Callable[[Step], Step], errors: AnySink | None) -> Self:
        """Copies the graph with some steps and the error sink replaced."""
        graph = copy.copy(self)
        graph._steps = [change(step) for step in self._steps]
        graph.errors = errors
        return graph

    def intercepting(self, default: bool) -> Self:
        """Copies the graph with ``default`` for the steps that do not say whether they intercept libraries."""
        return self.changed(
            lambda step: replace(step, intercepts=default) if step.intercepts is None else step, self.errors
        )

    def part(self, inputs: tuple[StepInput, ...], name: str, sink: AnySink, errors: AnySink | None) -> Self:
        """Copies the steps that lead to ``inputs``, which the sink of a new step reads, with another error sink."""
        wanted = {each.step for each in inputs}
        for step in reversed(self._steps):
            if step.number in wanted:
                wanted |= {each.step for each in step.inputs}
        numbers = {number: index for index, number in enumerate(sorted(wanted))}

        def renumbered(of: tuple[StepInput, ...]) -> tuple[StepInput, ...]:
            return tuple(replace(each, step=numbers[each.step]) for each in of)

        graph = copy.copy(self)
        graph.errors = errors
        graph._names = set(self._names)
        graph._steps = [
            replace(step, number=numbers[step.number], inputs=renumbered(step.inputs))
            for step in self._steps
            if step.number in wanted
        ]
        graph.add(name, renumbered(inputs), {}, sink=sink)
        return graph

    def check_sink(self, step: str, sink: AnySink) -> None:
        """Checks that ``sink`` is a sink and that no other step uses it.

        Raises: InvalidJob: it is not.
        """
        if not isinstance(sink, (TransactionalSink, ImmediateSink)):
            raise InvalidJob(
                step,
                f"gets a {type(sink).__qualname__}, which is not a sink",
                how_to_write(sink),
            )
        if sink is self.errors or any(other.sink is sink for other in self._steps):
            raise InvalidJob(
                step, "gets the sink of another step", "Join the streams by union, or give each stream its own sink."
            )
        join: Callable[[str], None] | None = getattr(sink, "join", None)
        if join is not None:
            join(self.name)


def _checked_name(what: str, name: Any) -> str:
    if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:
        raise InvalidJob(
            f"{name!r:.80}",
            f"cannot be the name of {what}",
            "A name has at most 64 letters, digits, '_', '-' and '.', and begins with a letter or a digit.",
        )
    return name
