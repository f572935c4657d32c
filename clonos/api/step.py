"""Steps of a job as the user wrote them, and the exchanges between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from clonos.api.emission import Emission
from clonos.api.key_by import KeyBy
from clonos.core.model.plan import ANYWHERE, PlacementRule
from clonos.expressions.stages import Stage
from clonos.operators.columnar.column_form import ColumnForm
from clonos.operators.columnar.joins.join_form import JoinForm
from clonos.operators.connector_contract import ImmediateSink, PushSource, Source, TransactionalSink
from clonos.operators.event_time.timestamp_assigner import TimestampAssigner
from clonos.operators.event_time.timestamps import TimestampColumn
from clonos.operators.operator import Operator
from clonos.operators.transforms.routed_outputs import Route

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


FACTS: Final = (
    *("runs_user_code", "is_per_record", "is_one_to_one", "selects_rows", "breaks_order", "has_calls"),
    *("requires_columns", "emits_columns", "side_tags", "state", "key_field"),
)
"""Attributes of an operator's class that its step has, too."""


def facts_of(make: Callable[[], Operator] | None) -> dict[str, Any]:
    """Returns what the class of an operator says of each step that it makes."""
    while isinstance(make, partial):
        make = make.func
    return {fact: getattr(make, fact) for fact in FACTS} if isinstance(make, type) else {}


@dataclass(frozen=True, slots=True)
class Step:
    """Step as the user wrote it.

    ``make`` creates its operator; None for sources and sinks, whose operators the compiler makes.

    - ``FACTS`` are those of its operator, which describes them, unless the method that adds the step knows more.
    - ``ignores_order``: its results are the same whatever the order of its records.
    - ``key_field``: the field of its results that holds their key, by which they are partitioned; "" for the first
      field of a tuple, None if there is no such field.
    - ``functions``: functions of the user that it calls, or its process function.
    - ``kind``: the method that added it. ``state``: what its state depends on, as ("window", "5s"); None without state.
    - ``reads``: columns of a record that it uses beside its key, None for all; ``names_columns``: by their names.
    - ``row_reason``: why it works on rows though it gets columns, "" if its operator shows that.
    - ``form``: what it needs of columns to work on them. ``schema_from``: returns the schema of its results for that of
      each input, None if they are rows. ``columns``: those that it declares, or of a source that
      ``is_described``, as it is in a plan; None if they are not known before the job runs.
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
    form: ColumnForm | JoinForm | None = None
    columns: Any = None
    is_described: bool = False
    schema_from: Callable[..., Any] | None = None
    rule: PlacementRule = ANYWHERE

    @property
    def sides(self) -> tuple[tuple[StepInput, ...], ...]:
        """Returns the inputs, or those of the first and of the second one of a step of two inputs."""
        second = self.second_from
        return (self.inputs,) if second is None else (self.inputs[:second], self.inputs[second:])
