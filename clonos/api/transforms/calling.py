"""Steps that make several calls at once: map_async, stateful_map_async, and map, filter and flat_map with ``par``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from clonos.api.common import CommonWithEffects
from clonos.api.graph_errors import InvalidJob
from clonos.api.step import StepInput
from clonos.api.steps import GraphBuilder
from clonos.api.themes import Theme
from clonos.operators.event_time.durations import duration_ns
from clonos.operators.steps.async_map import AsyncMap, ResultShape
from clonos.operators.steps.async_stateful_map import AsyncStatefulMap
from clonos.operators.steps.call_attempts import CallPolicy, is_asynchronous

if TYPE_CHECKING:
    from clonos.api.stream import Stream

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")


class KeyedCallOptions(CommonWithEffects, total=False):
    """Options of ``stateful_map_async`` for any function."""

    capacity: int
    retries: int
    retry_after: str | float | timedelta
    log_calls: bool


class CallOptions(KeyedCallOptions, Generic[T], total=False):
    """Options of ``map_async`` for any function."""

    ordered: bool
    key: Callable[[T], object] | str | None
    per_key: int


class Calling(Theme, Generic[T]):
    """Base of ``Stream`` with ``map_async``."""

    @overload
    def map_async(
        self,
        function: Callable[..., Coroutine[Any, Any, U]],
        *,
        timeout: str | float | timedelta | None = None,
        **options: Unpack[CallOptions[T]],
    ) -> Stream[U]: ...

    @overload
    def map_async(
        self, function: Callable[..., U], *, timeout: None = None, **options: Unpack[CallOptions[T]]
    ) -> Stream[U]: ...

    def map_async(
        self,
        function: Callable[..., Any],
        *,
        capacity: int = 16,
        ordered: bool = True,
        timeout: str | float | timedelta | None = None,
        retries: int = 0,
        retry_after: str | float | timedelta = "100ms",
        key: Callable[[T], object] | str | None = None,
        per_key: int = 1,
        log_calls: bool = False,
        **common: Unpack[CommonWithEffects],
    ) -> Stream[Any]:
        """Applies a function that waits for I/O to each record, with up to ``capacity`` calls at once.

        The return value or exception of each call is recorded, and replayed after a failure; a call whose outcome is
        not recorded yet is made again. The function may therefore do I/O and use clocks and random numbers freely.

        Args:
            function: called with the record, in a thread. An ``async def`` function runs in an event loop of the task.
                If it has a parameter ``idempotency_key`` (str), it gets a key that is the same when a call is repeated
                after a failure, or by ``retries``.
            capacity: calls of one task that run at once, at least 1.
            ordered: True for results in the order of the records, False for results as they arrive.
            timeout: the length of time after which an attempt of an ``async def`` function is cancelled and raises
                ``TimeoutError``. A thread cannot be cancelled: give the client of another function its timeout.
            retries: how often a call that raises is repeated, before its exception counts.
            retry_after: the pause before the first repetition; each further pause is twice as long.
            key: a function of the record or the name of a field, for ``per_key``.
            per_key: calls of one task that run at once for records with the same key, at least 1.
            log_calls: True records each call that the function makes through ``http``, a ``@service`` or an intercepted
                client, and not only what the function returns. A function that runs again after a failure, or by
                ``retries``, gets the outcomes that are recorded; ``random`` and ``clock`` repeat themselves, too.
                ``effects=True`` needs it.

        Raises:
            InvalidJob: an argument cannot be used.
        """
        step = common.get("name") or "map_async"
        check_count(step, "per_key", per_key, 1)
        arguments = _call_arguments(step, function, capacity, timeout, retries, retry_after, log_calls, common)
        by = {"key": itemgetter(key) if isinstance(key, str) else key, "per_key": per_key}
        arguments |= {"is_ordered": ordered, "policy": replace(arguments["policy"], **by)}
        return self._stream(self._step("map_async", lambda given: AsyncMap.facts(given, function, **arguments), common))


class KeyedCalling(Theme, Generic[K, T]):
    """Base of ``KeyedStream`` with ``stateful_map_async``."""

    @overload
    def stateful_map_async(
        self,
        function: Callable[..., Coroutine[Any, Any, tuple[Any, U]]],
        *,
        timeout: str | float | timedelta | None = None,
        **options: Unpack[KeyedCallOptions],
    ) -> Stream[U]: ...

    @overload
    def stateful_map_async(
        self, function: Callable[..., tuple[Any, U]], *, timeout: None = None, **options: Unpack[KeyedCallOptions]
    ) -> Stream[U]: ...

    def stateful_map_async(
        self,
        function: Callable[..., Any],
        *,
        capacity: int = 16,
        timeout: str | float | timedelta | None = None,
        retries: int = 0,
        retry_after: str | float | timedelta = "100ms",
        log_calls: bool = False,
        **common: Unpack[CommonWithEffects],
    ) -> Stream[Any]:
        """Applies ``function(key, state, value) -> (state, result)``, which waits for I/O, to each record.

        The calls of a key run one after the other, in the order of its records; up to ``capacity`` keys run at once.
        The state of a new key is None. Returning None as the state deletes the state of the key. A call that raises
        leaves the state as it was. The results of a key keep the order of its records; those of other keys come between
        as they arrive.

        Args:
            function: as for ``map_async``: runs in a thread, or in an event loop if it is ``async def``, and may have a
                parameter ``idempotency_key``.
            capacity: keys of one task whose calls run at once, at least 1. Further records wait.
            timeout: as for ``map_async``.
            retries: how often a call that raises is repeated, with the same state, before its exception counts.
            retry_after: the pause before the first repetition; each further pause is twice as long.
            log_calls: as for ``map_async``: True records each call that the function makes.

        Raises:
            InvalidJob: an argument cannot be used.
        """
        step = common.get("name") or "stateful_map_async"
        arguments = _call_arguments(step, function, capacity, timeout, retries, retry_after, log_calls, common)
        return self._stream(
            self._step("stateful_map_async", lambda given: AsyncStatefulMap.facts(given, function, **arguments), common)
        )


def _call_arguments(
    step: str,
    function: Callable[..., Any],
    capacity: int,
    timeout: str | float | timedelta | None,
    retries: int,
    retry_after: str | float | timedelta,
    log_calls: bool,
    common: CommonWithEffects,
) -> dict[str, Any]:
    """Returns the arguments of the operator of a step that makes calls. Raises: InvalidJob: one cannot be used."""
    check_count(step, "capacity", capacity, 1)
    check_count(step, "retries", retries, 0)
    _check_timeout(step, timeout, function)
    _check_agent(step, function, log_calls, common)
    if not log_calls:
        _check_unlogged(step, common)
    timeout_ns = None if timeout is None else duration_ns(timeout)
    policy = CallPolicy(timeout_ns=timeout_ns, retries=retries, retry_after_ns=duration_ns(retry_after))
    return {"function": function, "capacity": capacity, "policy": policy, "logs_calls": log_calls}


def add_parallel(
    stream: GraphBuilder, kind: str, function: Callable[[Any], Any], par: int, common: CommonWithEffects
) -> tuple[StepInput, ...]:
    """Adds a map, filter or flat_map that makes ``par`` calls at once, with their outcomes in order.

    Raises: InvalidJob: ``par`` is not an int of at least 1, or the step has effects.
    """
    step = common.get("name") or kind
    check_count(step, "par", par, 1)
    if common.get("effects"):
        raise InvalidJob(
            step,
            "has effects and par=, and calls that run side by side may be made again after a failure",
            "Leave out par=, or make the effect repeatable by its idempotency_key and use map_async.",
        )
    arguments: dict[str, Any] = {"function": function, "capacity": par, "is_ordered": True, "shape": ResultShape(kind)}
    return stream._step(kind, lambda given: AsyncMap.facts(given, function, **arguments), common)


def _check_agent(step: str, function: object, log_calls: bool, common: CommonWithEffects) -> None:
    """Raises: InvalidJob: the function is an agent, and an option is missing that its tools need."""
    from clonos_services.ai_agent import Agent  # with the HTTP client, which most jobs do without

    if not isinstance(function, Agent):
        return
    if not log_calls:
        raise InvalidJob(
            step,
            "has an agent, and would make all its calls again if its process dies, as one call",
            "Add log_calls=True, which records each question and each call of a tool.",
        )
    if function.has_effects and not common.get("effects"):
        raise InvalidJob(step, "has an agent whose tools have effects", "Add effects=True.")


def _check_unlogged(step: str, common: CommonWithEffects) -> None:
    """Raises: InvalidJob: an option needs the log to have each call of the function."""
    if common.get("effects"):
        raise InvalidJob(
            step,
            "has effects, and a call whose process dies is made again as a whole",
            "Add log_calls=True, which announces each effect before it takes place.",
        )
    if common.get("intercept"):
        raise InvalidJob(
            step,
            "has intercept=True, and only the outcome of its function is recorded, which may use anything",
            "Leave it out, or add log_calls=True, which records each call of the function.",
        )


def _check_timeout(step: str, timeout: object, function: Callable[..., Any]) -> None:
    if timeout is not None and not is_asynchronous(function):
        raise InvalidJob(
            step,
            "has a timeout, and its function runs in a thread, which nothing can cancel",
            "Give the timeout to the client that the function calls, or write the function with async def.",
        )


def check_count(step: str, what: str, number: object, least: int, most: int | None = None) -> None:
    """Raises: InvalidJob: ``number`` is not an int of at least ``least``, and at most ``most`` if there is a limit."""
    if type(number) is not int or number < least or (most is not None and number > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        raise InvalidJob(step, f"has {what}={number!r:.80}", f"Give an int {wanted}.")
