"""Logical graph of a job: the steps as the user wrote them, and the exchanges between them.

A method of a stream adds a step; a step is never changed and follows all its inputs in the list of steps.
``clonos.api.plan.compiling`` makes the physical plan of the graph.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast

from clonos.api.checks.hot_standby_rules import check_standby
from clonos.api.checks.wrong_ends import how_to_read, how_to_write
from clonos.api.common import Common, CommonWithEffects
from clonos.api.emission import Emission
from clonos.api.graph_errors import InvalidJob
from clonos.api.keys import KeyBy as KeyBy
from clonos.core.model.options import Options
from clonos.core.model.plan import ANYWHERE, PlacementRule
from clonos.expressions.stages import Stage
from clonos.operators.column_contract import gives_columns
from clonos.operators.connector_contract import ImmediateSink, PushSource, Source, TransactionalSink
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.job_image import JobImage
from clonos.operators.operator import Operator
from clonos.operators.transforms.routing import Route

if TYPE_CHECKING:
    from clonos.api.event_time import AnyTimestamps
    from clonos.api.stream import Stream

T = TypeVar("T")

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ERRORS_STEP: Final = "errors"

AnySink = TransactionalSink | ImmediateSink
AnySource = Source[Any] | PushSource[Any]


class Exchange(StrEnum):
    """Way of records from one step to the next."""

    FORWARD = "forward"
    HASH = "hash"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"
    RESCALE = "rescale"
    SHUFFLE = "shuffle"
    GLOBAL = "global"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class StepInput:
    """Input of a step: the number of the step that it reads, and the exchange between them.

    A union has several inputs. ``tag``: the side output that it reads; "" for the results of the step. ``route``
    chooses the receiving task, where the sender does.
    """

    step: int
    exchange: Exchange = Exchange.FORWARD
    key: KeyBy | None = None
    route: Route | None = None
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """Step as the user wrote it.

    ``make`` creates its operator; None for sources and sinks, whose operators the compiler makes.

    - ``emits_columns``: its results are record batches; ``requires_columns``: it accepts record batches only.
    - ``is_one_to_one``: result i of a batch belongs to record i. ``selects_rows``: its results are some of its records.
    - ``has_calls``: it makes calls beside its steps. ``is_per_record``: it handles each record alone.
    - ``ignores_order``: its results are the same whatever the order of its records. ``breaks_order``: its results have
      another order than its records.
    - ``key_field``: the field of its results that holds their key, by which they are partitioned; "" for the first
      field of a tuple, None if there is no such field.
    - ``functions``: functions of the user that it calls, or its process function.
    - ``kind``: the method that added it. ``state``: what its state depends on, as ("window", "5s"); None without state.
    - ``reads``: columns of a record that it uses beside its key, None for all; ``names_columns``: by their names.
    - ``row_reason``: why it works on rows though it gets columns, "" if its operator shows that. For the schema of each
      input ``rows_for`` says why it works on rows, "" if it does not, and ``schema_from`` returns that of its results.
    - ``side_tags``: tags of its side outputs, for ``Stream.side_output``; None for any, those that its function names.
    - ``second_from``: a step of two inputs; its inputs from this index on belong to the second one.
    - ``emits_at_end``: it emits when its input has ended, not before. ``assigner``: it gives timestamps by this.
      ``has_times``: its results have timestamps; those in columns are in ``timestamp_column``.
    - ``flush``: when it passes rows on to the sink after it. ``stage``: what it does to columns, if it is such a step.
      ``partial``: makes the operators in front of its exchange by columns, for its name; None without them.
    - ``parallelism``, ``standby``: None for the setting of the job (a sink has the parallelism of the step before it).
    """

    number: int
    name: str
    is_named: bool
    inputs: tuple[StepInput, ...]
    make: Callable[[], Operator] | None = None
    source: AnySource | None = None
    sink: AnySink | None = None
    parallelism: int | None = None
    has_effects: bool = False
    standby: str | None = None
    runs_user_code: bool = False
    emits_columns: bool = False
    requires_columns: bool = False
    is_one_to_one: bool = False
    selects_rows: bool = False
    has_calls: bool = False
    is_per_record: bool = False
    ignores_order: bool = False
    breaks_order: bool = False
    key_field: str | None = None
    functions: tuple[Any, ...] = ()
    kind: str = ""
    state: tuple[tuple[str, str], ...] | None = None
    second_from: int | None = None
    emits_at_end: bool = False
    side_tags: tuple[str, ...] | None = ()
    has_times: bool = False
    timestamp_column: TimestampColumn | None = None
    assigner: TimestampAssigner | None = None
    flush: Emission | None = None
    stage: Stage | None = None
    follows_clock: bool = False
    reads: tuple[str, ...] | None = None
    names_columns: bool = False
    partial: Callable[[str], Callable[[], Operator]] | None = None
    row_reason: str = ""
    rows_for: Callable[[Any], str] | None = None
    schema_from: Callable[..., Any] | None = None
    rule: PlacementRule = ANYWHERE


class JobGraph:
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

    def source(
        self,
        source: Source[T] | PushSource[T],
        *,
        timestamps: AnyTimestamps | None = None,
        limit: int | None = None,
        **common: Unpack[Common],
    ) -> Stream[T]:
        """Adds a source and returns the stream of its records, as ``Job.source`` does.

        Raises: InvalidJob: this is not a source, or the name, the parallelism, the standby or the limit cannot be used.
        """
        from clonos.api.stream import Stream

        limit = self.limit if limit is None else limit
        name = common.get("name")
        common["parallelism"] = _parallelism_of_source(
            source, name or "source", common.get("parallelism"), has_limit=limit is not None
        )
        emits_columns = gives_columns(source)
        assigner = None
        if (own := getattr(source, "own_timestamps", None)) is not None and timestamps is not None:
            raise InvalidJob(name or "source", "has timestamps of its own and timestamps=", "Leave one out.")
        timestamps = timestamps or own
        if timestamps is not None and not isinstance(source, PushSource):
            from clonos.api.event_time import assigner_of, check_columns

            assigner = assigner_of(timestamps)
            check_columns(name or "source", assigner, emits_columns)
        step = self.add(
            "source",
            (),
            common,
            source=source,
            emits_columns=emits_columns,
            is_one_to_one=True,
            has_times=assigner is not None,
            timestamp_column=assigner.column if assigner is not None and emits_columns else None,
            assigner=assigner,
            functions=() if assigner is None else assigner.functions,
        )
        stream: Stream[T] = Stream(self, (StepInput(step.number),))
        if emits_columns and assigner is not None:
            from clonos.api.columns.column_checks import check_present

            check_present(self, stream._inputs, step.name, f"has timestamps={assigner.of!r}", assigner.of)
        if timestamps is not None and isinstance(source, PushSource):
            stream = stream.with_timestamps(timestamps)
        return stream if limit is None else stream.limit(limit, name=name and f"{step.name}.limit")

    def add(
        self,
        kind: str,
        inputs: tuple[StepInput, ...],
        common: Common,
        *,
        make: Callable[[str], Callable[[], Operator]] | None = None,
        has_times: bool | None = None,
        **rest: Any,
    ) -> Step:
        """Adds a step that reads ``inputs``.

        ``make`` returns for the step's name the function that creates its operators. ``has_times``: whether its results
        have timestamps; None if it keeps those of its input.

        Raises: InvalidJob: the name, the parallelism or the standby cannot be used.
        """
        given, parallelism, standby = common.get("name"), common.get("parallelism"), common.get("standby")
        has_effects = cast(CommonWithEffects, common).get("effects", False)
        name = self.reserve_name(kind, given)
        if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
            raise InvalidJob(
                name, f"has the parallelism {parallelism!r}", "Give the number of tasks: an int of at least 1."
            )
        check_standby(name, standby, has_effects, rest.get("source"))
        if has_times is None:
            has_times = self.have_same_times(name, inputs)
            if has_times and rest.get("emits_columns"):
                rest.setdefault("timestamp_column", self._steps[inputs[0].step].timestamp_column)
        step = Step(
            number=len(self._steps),
            name=name,
            is_named=given is not None,
            inputs=inputs,
            make=None if make is None else make(name),
            parallelism=parallelism,
            has_effects=has_effects,
            standby=standby,
            kind=kind,
            has_times=has_times,
            **rest,
        )
        self._steps.append(step)
        return step

    def place(self, number: int, rule: PlacementRule) -> None:
        """Sets where the tasks of a step run."""
        self._steps[number] = replace(self._steps[number], rule=rule)

    def gives_columns(self, step_input: StepInput) -> bool:
        """Returns whether an input gives record batches; side outputs give rows."""
        return self._steps[step_input.step].emits_columns and not step_input.tag

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
        self._names.add(name)
        return name

    def changed(self, change: Callable[[Step], Step], errors: AnySink | None) -> JobGraph:
        """Copies the graph with some steps and the error sink replaced, for tests."""
        graph = copy.copy(self)
        graph._steps = [change(step) for step in self._steps]
        graph.errors = errors
        return graph

    def part(self, inputs: tuple[StepInput, ...], name: str, sink: AnySink, errors: AnySink | None) -> JobGraph:
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

    def compile(
        self,
        options: Options,
        *,
        parallelism: int = 1,
        splits: Mapping[str, Sequence[bytes] | None] | None = None,
    ) -> JobImage:
        """Compiles the physical plan with the operators of its vertices.

        ``parallelism`` is that of every step without its own. ``splits`` are those of the first start
        (``JobImage.splits``) if the job is resumed; None: each source is asked for its splits.

        Raises: InvalidJob, ColumnsNeeded: the job is not well-formed. BadSplits: ``splits`` are of other sources.
        """
        from clonos.api.plan.compiling import compile_graph

        return compile_graph(self, options, parallelism, splits)


def _parallelism_of_source(source: object, step: str, parallelism: int | None, *, has_limit: bool) -> int | None:
    """Returns the parallelism of a source: 1 if only one task can read it, or count to its limit.

    Raises: InvalidJob: this is not a source, or it cannot have the given parallelism.
    """
    if not isinstance(source, (Source, PushSource)):
        raise InvalidJob(
            step,
            f"gets a {type(source).__qualname__}, which is not a source",
            how_to_read(source),
        )
    if has_limit and parallelism not in (None, 1):
        raise InvalidJob(
            step,
            f"has a limit and the parallelism {parallelism!r}, and only one task can count to it",
            "Leave out parallelism=, or the limit.",
        )
    if isinstance(source, PushSource) and parallelism not in (None, 1):
        raise InvalidJob(
            step,
            f"has the parallelism {parallelism!r}, but its source has a single connection",
            "Leave it out; join several sources by union if one connection is too slow.",
        )
    return 1 if has_limit or isinstance(source, PushSource) else parallelism


def _checked_name(what: str, name: Any) -> str:
    if not isinstance(name, str) or NAME_PATTERN.fullmatch(name) is None:
        raise InvalidJob(
            f"{name!r:.80}",
            f"cannot be the name of {what}",
            "A name has at most 64 letters, digits, '_', '-' and '.', and begins with a letter or a digit.",
        )
    return name
