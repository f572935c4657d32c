"""Enrichment of a stream by the answers of a service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, Unpack, overload

from clonos.api.checks.function_checks import check_function
from clonos.api.common import Common
from clonos.api.graph_errors import InvalidJob
from clonos.api.themes import Theme
from clonos.api.transforms.calling import check_count
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.event_time.durations import Duration, duration_ns
from clonos.operators.facts import Definition
from clonos.operators.fields import Field
from clonos.operators.steps.call_attempts import CallPolicy
from clonos.operators.steps.enrich import CacheRules, Enrich, NotFound
from clonos.operators.steps.enrich_batch import EnrichBatch

if TYPE_CHECKING:
    from clonos.api.stream import Stream
    from clonos.operators.steps.http_lookup import HttpLookup
    from clonos_services.http_response import Response
    from clonos_services.http_session import SessionSettings

T = TypeVar("T")
R = TypeVar("R")

Lookup = str | Callable[[Any], Any]
BatchLookup = Callable[..., Any]
CacheLimits = int | str | timedelta | tuple[int, str | timedelta] | None
Missing = Literal["none", "skip", "error"]

KEYS_MAX: Final = 1 << 16
"""Keys of a question. Several times as many records wait for answers in memory and in checkpoints."""

CACHE_SIZE: Final = 10_000
"""Answers that a cache keeps which is limited by time alone."""

NO_CACHE: Final = 'Give a number of answers, a length of time such as "10min", or both: (1_000, "10min").'


@explains_calls
def http_lookup(
    url: str, *, answer: Callable[[Response], Any] | None = None, **settings: Unpack[SessionSettings]
) -> HttpLookup:
    """Describes the lookup of records in an HTTP service, for ``enrich``.

    A GET request asks for each record. A reply of 404, 410 or 204 has no answer, any other one of 400 or above is an
    error.

    Args:
        url: the address, with fields of the record in braces: ``"https://host/users/{user}?at={day}"``. Their values
            are quoted.
        answer: makes the answer of a good reply; None takes what its JSON says.
        settings: those of ``http.session``, such as ``headers=``, ``timeout=`` and ``base_url=``.

    Raises:
        InvalidJob: the address is no URL with fields in braces.
    """
    from clonos.operators.steps.http_lookup import HttpLookup  # with urllib3, 40 ms
    from clonos_services.http_response import Response
    from clonos_services.http_session import Session

    try:
        found = HttpLookup(url, Session(**settings), answer or Response.json)
    except (ValueError, TypeError, AttributeError):
        problem = "has an address that is malformed, or that has something else than fields in braces"
        raise InvalidJob("http_lookup", f"gets {url!r:.200}, which {problem}", f"Write {EXAMPLE}.") from None
    if not (settings.get("base_url") or url.startswith(("http://", "https://"))):
        raise InvalidJob("http_lookup", f"gets {url!r:.200}, which is no http:// address", f"Write {EXAMPLE}.")
    return found


EXAMPLE: Final = '"https://host/users/{user}", where user is a field of the record'


class EnrichOptions(Common, Generic[T], total=False):
    """Options of ``enrich`` that do not change the type of its results."""

    on: str | Callable[[T], Any] | None
    cache: CacheLimits
    rate: float | None
    not_found: Missing
    capacity: int
    retries: int
    retry_after: str | float | timedelta


class EnrichBatchOptions(EnrichOptions[T], Generic[T], total=False):
    """Options of ``enrich_batch`` that do not change the type of its results."""

    keys: int
    within: Duration


class Enriching(Theme, Generic[T]):
    """Base of ``Stream`` with ``enrich`` and ``enrich_batch``."""

    @overload
    def enrich(
        self, lookup: Lookup, *, into: str, select: None = None, **options: Unpack[EnrichOptions[T]]
    ) -> Stream[dict[str, Any]]: ...

    @overload
    def enrich(
        self, lookup: Lookup, *, into: None = None, select: Callable[[T, Any], R], **options: Unpack[EnrichOptions[T]]
    ) -> Stream[R]: ...

    @overload
    def enrich(
        self, lookup: Lookup, *, into: None = None, select: None = None, **options: Unpack[EnrichOptions[T]]
    ) -> Stream[tuple[T, Any]]: ...

    def enrich(
        self,
        lookup: Lookup,
        *,
        on: str | Callable[[T], Any] | None = None,
        into: str | None = None,
        select: Callable[[T, Any], Any] | None = None,
        cache: CacheLimits = None,
        rate: float | None = None,
        not_found: Missing = "none",
        capacity: int = 16,
        retries: int = 0,
        retry_after: str | float | timedelta = "100ms",
        **common: Unpack[Common],
    ) -> Stream[Any]:
        """Adds to each record what a service answers for it; results keep the order of the records.

        Answers are recorded and the cache is part of the state: a replay gives the same results.

        Args:
            lookup: an address with fields of the record in braces, such as ``"https://host/users/{user}"``, an
                ``http_lookup``, or a function of the key ``on``, also ``async def``, that returns the answer or None.
            on: a field or a function of the record that gives the key for a function. No answer is asked for None.
            into: the field that has the answer; records are dicts then.
            select: makes the result of the record and its answer. Without ``into`` and ``select`` it is the pair.
            cache: how many answers each task stores, how long, such as "10min", or both as a pair. None: each record
                asks. Not found is an answer, too; an error is none.
            rate: the greatest number of calls per second of all tasks of the step together. Repetitions count.
            not_found: "none" for a result with None, "skip" for none, "error" for an error of the record.
            capacity: calls of one task that run at once. ``retries`` and ``retry_after``: as for ``map_async``.

        Raises:
            InvalidJob: an argument cannot be used.

        Example::

            clicks.enrich("https://host/users/{user}", into="profile", cache=(50_000, "10min"), rate=100)
        """
        step = common.get("name") or "enrich"
        select, policy = _result_of(step, into, select), _policy(step, retries, retry_after, rate)
        asked, key = _lookup_of(step, lookup, on)
        definition = _definition(step, Enrich, asked, key, on, select, cache, not_found, capacity, policy)
        return self._stream(self._step("enrich", definition, common))

    @overload
    def enrich_batch(
        self, lookup: BatchLookup, *, into: str, select: None = None, **options: Unpack[EnrichBatchOptions[T]]
    ) -> Stream[dict[str, Any]]: ...

    @overload
    def enrich_batch(
        self,
        lookup: BatchLookup,
        *,
        into: None = None,
        select: Callable[[T, Any], R],
        **options: Unpack[EnrichBatchOptions[T]],
    ) -> Stream[R]: ...

    @overload
    def enrich_batch(
        self, lookup: BatchLookup, *, into: None = None, select: None = None, **options: Unpack[EnrichBatchOptions[T]]
    ) -> Stream[tuple[T, Any]]: ...

    def enrich_batch(
        self,
        lookup: Any,
        *,
        on: str | Callable[[T], Any] | None = None,
        keys: int = 1_000,
        within: Duration = "20ms",
        into: str | None = None,
        select: Callable[[T, Any], Any] | None = None,
        cache: CacheLimits = None,
        rate: float | None = None,
        not_found: Missing = "none",
        capacity: int = 4,
        retries: int = 0,
        retry_after: str | float | timedelta = "100ms",
        **common: Unpack[Common],
    ) -> Stream[Any]:
        """Adds to each record what a service answers for it, and asks for many keys at once.

        For services, databases and models that answer a question for 1,000 keys almost as fast as for one. Results,
        answers and the cache are as for ``enrich``.

        Args:
            lookup: a function of a list of different keys, also ``async def``. It returns a mapping from key to answer,
                or a frame of pandas, Polars or Arrow with the key in the column ``on``; the answer is the row then, a
                dict. A key that is missing has no answer. An answer that is an exception is the error of its records.
            on: a field or a function of the record that gives the key. No answer is asked for None.
            keys: the most keys of a question. They are asked for as soon as they wait.
            within: the longest time that a key waits for others.
            into: the field that has the answer; records are dicts then.
            select: makes the result of the record and its answer. Without ``into`` and ``select`` it is the pair.
            cache: as for ``enrich``. Without it a question has each key once, and the next question asks again.
            rate: the greatest number of questions per second of all tasks of the step together.
            not_found: as for ``enrich``.
            capacity: questions of a task that are open at once. ``retries`` and ``retry_after``: as for ``map_async``.

        Raises:
            InvalidJob: an argument cannot be used.

        Example::

            orders.enrich_batch(prices_of, on="product", into="price", keys=500, within="50ms")
        """
        step = common.get("name") or "enrich_batch"
        select, policy = _result_of(step, into, select), _policy(step, retries, retry_after, rate)
        if not callable(lookup):
            problem = f"gets {lookup!r:.80}, which is no function"
            raise InvalidJob(step, problem, "Give a function of a list of keys that returns a dict from key to answer.")
        asked, key = _lookup_of(step, lookup, on)
        check_count(step, "keys", keys, 1, KEYS_MAX)
        waits = {"keys_max": keys, "interval_ns": duration_ns(within), "field": on if isinstance(on, str) else None}
        definition = _definition(step, EnrichBatch, asked, key, on, select, cache, not_found, capacity, policy, **waits)
        return self._stream(self._step("enrich_batch", definition, common))


def _policy(step: str, retries: int, retry_after: Duration, rate: float | None) -> CallPolicy:
    check_count(step, "retries", retries, 0)
    return CallPolicy(retries=retries, retry_after_ns=duration_ns(retry_after), rate=_checked_rate(step, rate))


def _definition(
    step: str,
    operator: type[Enrich],
    asked: Callable[..., Any],
    key: Callable[[Any], Any],
    on: Any,
    select: Callable[[Any, Any], Any],
    cache: Any,
    not_found: str,
    capacity: int,
    policy: CallPolicy,
    **waits: Any,
) -> Definition:
    check_count(step, "capacity", capacity, 1)
    if not_found not in tuple(NotFound):
        raise InvalidJob(step, f"gets not_found={not_found!r:.80}", 'Give "none", "skip" or "error".')
    functions = (asked, on, select) if callable(on) else (asked, select)
    arguments = {"capacity": capacity, "policy": policy, "cache": _cache_rules(step, cache), **waits}
    return lambda given: operator.facts(
        given, *functions, lookup=asked, key=key, select=select, not_found=NotFound(not_found), **arguments
    )


class Into:
    """Function that gives a record, a dict, the field that has its answer."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __call__(self, record: Any, answer: Any) -> dict[str, Any]:
        return {**record, self._field: answer}


def _lookup_of(step: str, lookup: Any, on: Any) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
    """Returns the function that asks, and the function of a record that gives the key it asks for."""
    if isinstance(lookup, str):
        lookup = http_lookup(lookup)
    from clonos.operators.steps.http_lookup import HttpLookup

    if isinstance(lookup, HttpLookup):
        if on is not None:
            raise InvalidJob(step, "gets an address and on=", "Leave on out: the address names fields of the record.")
        return lookup, lookup.url_of
    if not callable(lookup):
        problem = f"gets {lookup!r:.80}, which is neither an address nor a function"
        raise InvalidJob(step, problem, f"Write {EXAMPLE}, or give a function of the key.")
    if not isinstance(on, str) and not callable(on):
        raise InvalidJob(step, f"asks a function, and gets on={on!r:.80}", "Give a field or a function of the record.")
    return lookup, Field(on) if isinstance(on, str) else on


def _result_of(step: str, into: Any, select: Any) -> Callable[[Any, Any], Any]:
    if into is not None and select is not None:
        raise InvalidJob(step, "gets into= and select=", "Give one of them.")
    if into is not None:
        if not isinstance(into, str):
            raise InvalidJob(step, f"gets into={into!r:.80}", "Give the name of a field.")
        return Into(into)
    if select is None:
        return _pair
    check_function("join", step, select, arguments=("record", "answer"))  # it must not be async
    return select  # type: ignore[no-any-return]


def _pair(record: Any, answer: Any) -> tuple[Any, Any]:
    return record, answer


def _checked_rate(step: str, rate: float | None) -> float | None:
    is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if rate is not None and not (is_number and 0 < rate < float("inf")):
        raise InvalidJob(step, f"gets rate={rate!r:.80}", "Give the greatest number of calls per second, above 0.")
    return rate


def _cache_rules(step: str, cache: Any) -> CacheRules | None:
    if cache is None:
        return None
    size, ttl = CACHE_SIZE, None
    if isinstance(cache, tuple) and len(cache) == 2:
        size, ttl = cache
    elif isinstance(cache, str | timedelta):
        ttl = cache
    else:
        size = cache
    if type(size) is not int or size < 1 or not (ttl is None or isinstance(ttl, str | timedelta)):
        raise InvalidJob(step, f"gets cache={cache!r:.80}", NO_CACHE)
    return CacheRules(size, None if ttl is None else duration_ns(ttl))
