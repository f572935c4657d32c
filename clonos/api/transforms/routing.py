"""Methods of a stream that say which task of the next step gets a record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from clonos.api.checks.function_checks import check_function
from clonos.api.step import Exchange
from clonos.api.themes import Theme
from clonos.operators.fields import Field
from clonos.operators.operator import Operator
from clonos.operators.transforms.routed_outputs import Route, ToChosen, ToFirst, ToGroup, ToRandom

if TYPE_CHECKING:
    from clonos.api.stream import Stream

T = TypeVar("T")
K = TypeVar("K")


class Routing(Theme, Generic[T]):
    """Base of ``Stream`` with the methods that route records."""

    def rebalance(self) -> Stream[T]:
        """Distributes records round-robin over the tasks of the next step."""
        return self._stream(self._inputs_by(Exchange.REBALANCE))

    def broadcast(self) -> Stream[T]:
        """Sends every record to every task of the next step."""
        return self._stream(self._inputs_by(Exchange.BROADCAST))

    def rescale(self) -> Stream[T]:
        """Distributes records round-robin over a few tasks of the next step, so that each has few senders.

        Of 2 senders and 4 receivers, each sender feeds 2 receivers; of 4 senders and 2 receivers, 2 senders feed each
        receiver.
        """
        return self._routed(Exchange.RESCALE, ToGroup)

    def shuffle(self) -> Stream[T]:
        """Sends each record to a random task of the next step. The random numbers are recorded, as all others are."""
        return self._routed(Exchange.SHUFFLE, ToRandom)

    def global_(self) -> Stream[T]:
        """Sends all records to the first task of the next step; its other tasks get none."""
        return self._routed(Exchange.GLOBAL, ToFirst)

    @overload
    def partition_custom(self, function: Callable[[T, int], int], *, name: str | None = None) -> Stream[T]: ...

    @overload
    def partition_custom(
        self, function: Callable[[K, int], int], key: Callable[[T], K], *, name: str | None = None
    ) -> Stream[T]: ...

    @overload
    def partition_custom(
        self, function: Callable[[Any, int], int], key: str, *, name: str | None = None
    ) -> Stream[T]: ...

    def partition_custom(
        self, function: Callable[[Any, int], int], key: Any = None, *, name: str | None = None
    ) -> Stream[T]:
        """Sends each record to the task that a function chooses; the stream stays one without keys.

        Args:
            function: called with (key, number of tasks of the next step); returns the index of a task, from 0 on.
            key: a function of the record or the name of a field, whose result ``function`` gets; None for the record.
            name: unique name, for messages.

        Example::

            rows.partition_custom(lambda country, tasks: 0 if country == "FR" else 1 % tasks, "country")
        """
        kind = "partition_custom"
        check_function(kind, name or kind, function)
        if key is not None and not isinstance(key, str):
            check_function(kind, name or kind, key)
        key_of = Field(key) if isinstance(key, str) else key
        return self._routed(Exchange.CUSTOM, partial(ToChosen, function, key_of), kind, name)

    def _routed(
        self, exchange: Exchange, make: Callable[..., Operator], kind: str = "", name: str | None = None
    ) -> Stream[T]:
        route = Route(self._graph.reserve_name(kind or exchange.value, name), make)
        return self._stream(self._inputs_by(exchange, route=route))
