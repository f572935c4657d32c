"""Steps of a job as the user wrote them, and the exchanges between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from clonos.api.key_by import KeyBy
from clonos.core.model.plan import ANYWHERE, PlacementRule
from clonos.operators.connector_contract import ImmediateSink, PushSource, Source, TransactionalSink
from clonos.operators.facts import Facts
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Facts):
    """Step as the user wrote it, with the facts of its definition. Sources and sinks have no operator of their own.

    - ``kind``: the method that added it.
    - ``second_from``: a step of two inputs; its inputs from this index on belong to the second one.
    - ``is_described``: a source whose ``columns`` are those that the plan knows; None of them if it knows none.
    - ``parallelism``, ``standby``, ``intercepts``: None for the setting of the job (a sink has the parallelism of the
      step before it).
    """

    number: int
    name: str
    is_named: bool
    inputs: tuple[StepInput, ...]
    kind: str
    source: AnySource | None = None
    sink: AnySink | None = None
    parallelism: int | None = None
    has_effects: bool = False
    intercepts: bool | None = None
    standby: str | None = None
    second_from: int | None = None
    is_described: bool = False
    rule: PlacementRule = ANYWHERE

    @property
    def functions(self) -> tuple[Any, ...]:
        """Returns the functions of the user that it calls, or its process function."""
        return tuple(each.function for each in self.calls)

    @property
    def sides(self) -> tuple[tuple[StepInput, ...], ...]:
        """Returns the inputs, or those of the first and of the second one of a step of two inputs."""
        return sides_of(self.inputs, self.second_from)


def sides_of(inputs: tuple[StepInput, ...], second_from: int | None) -> tuple[tuple[StepInput, ...], ...]:
    """Returns the inputs of a step, or those of the first and of the second side of one with two inputs."""
    return (inputs,) if second_from is None else (inputs[:second_from], inputs[second_from:])
