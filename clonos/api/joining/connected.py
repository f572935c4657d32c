"""Connected streams: two streams whose records one process function takes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, Unpack

from clonos.api.checks.function_checks import check_process, uses
from clonos.api.checks.missing_methods import method_missing
from clonos.api.checks.wrong_ends import check_streams
from clonos.api.common import CommonWithEffects
from clonos.api.graph_errors import InvalidJob
from clonos.api.joining.joins import two_input_step
from clonos.api.step import Exchange
from clonos.api.steps import GraphBuilder
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.steps.context import GIVE_TIMESTAMPS
from clonos.operators.steps.two_input_process import TwoInputContext, TwoInputProcess

if TYPE_CHECKING:
    from clonos.api.stream import Stream

A = TypeVar("A")
B = TypeVar("B")
U = TypeVar("U")
A_contra = TypeVar("A_contra", contravariant=True)
B_contra = TypeVar("B_contra", contravariant=True)

METHODS: Final = ("process_first", "process_second")


class TwoInputFunction(Protocol[A_contra, B_contra, U]):
    """Process function of two streams, for ``connect``. Its other methods and rules are those of ``ProcessFunction``.

    Both methods share state and timers. With a broadcast second stream, ``process_second`` writes broadcast state,
    which ``context.broadcast_state(descriptor)`` gives to all methods.

    Example::

        class Rules:
            limits = MapState[str, float]("limits")

            def process_first(self, payment, context):
                if payment["amount"] > context.broadcast_state(self.limits).get(payment["country"], 1000):
                    context.emit(payment)

            def process_second(self, rule, context):
                context.broadcast_state(self.limits)[rule["country"]] = rule["limit"]

        payments.connect(rules.broadcast()).process(Rules)
    """

    def process_first(self, value: A_contra, context: TwoInputContext[Any, U], /) -> None:
        """Processes one record of the first stream."""

    def process_second(self, value: B_contra, context: TwoInputContext[Any, U], /) -> None:
        """Processes one record of the second stream."""


@explains_calls
class ConnectedStreams(Generic[A, B]):
    """Two streams that are connected; call ``process`` next."""

    def __init__(self, first: GraphBuilder, second: GraphBuilder, is_keyed: bool) -> None:
        """Connects two streams. ``is_keyed``: the first one has keys.

        Raises: InvalidJob: the second one has keys and the first has not, or it has none and is not broadcast.
        """
        check_streams("connect", (second,))
        exchanges = {each.exchange for each in second._inputs}
        self._is_broadcast = exchanges == {Exchange.BROADCAST}
        if Exchange.HASH in exchanges and {each.exchange for each in first._inputs} == {Exchange.BROADCAST}:
            raise InvalidJob(
                "process",
                "connects a broadcast stream with a keyed one",
                "The broadcast stream comes second: keyed.connect(rules.broadcast()).",
            )
        if Exchange.HASH in exchanges and not is_keyed:
            raise InvalidJob("process", "connects a stream without keys with a keyed one", "Call key_by on both.")
        if is_keyed and exchanges != {Exchange.HASH} and not self._is_broadcast:
            raise InvalidJob(
                "process",
                "connects a keyed stream with a stream that is neither keyed nor broadcast",
                "Call key_by on both, or connect(other.broadcast()).",
            )
        self._first, self._second, self._is_keyed = first, second, is_keyed

    if not TYPE_CHECKING:  # a type checker must go on to report a missing method

        def __getattr__(self, attribute):
            raise method_missing(type(self), attribute)

    def process(
        self, function: TwoInputFunction[A, B, U] | type[TwoInputFunction[A, B, U]], **common: Unpack[CommonWithEffects]
    ) -> Stream[U]:
        """Runs a process function on the records of both streams. Results have timestamps if both streams have.

        Raises:
            InvalidJob: ``function`` is no such process function; the message says why.
        """
        from clonos.api.stream import Stream

        step = common.get("name") or "process"
        check_process(step, function, METHODS)
        sides = (self._first, self._second)
        has_times = all(each._graph.have_same_times(step, each._inputs) for each in sides)
        if not has_times and uses(function, "set_event_timer"):
            raise InvalidJob(step, "sets event-time timers, and one of its streams has no event time", GIVE_TIMESTAMPS)
        definition = partial(
            TwoInputProcess.facts,
            function=function,
            has_times=has_times,
            is_keyed=self._is_keyed,
            is_broadcast=self._is_broadcast,
        )
        inputs = two_input_step(*sides, "process", definition, common)
        return Stream(self._first._graph, inputs)
