"""Usage of recorded calls, such as the tokens and the money of models: part of their outcomes (protocol 2).

The code of a call notes what it uses. The outcome of the call in the log has these notes, whether it is a value or an
exception, and the task counts them where the outcome arrives, live and in a replay. So what a logged call has used
counts once, whatever dies; what a call without an entry has used is lost with its process.

The counts are metrics, which are state of the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Final, NamedTuple

from clonos.core.log.call_outcomes import OutcomeMalformed, encode_outcome, usage_part, with_usage
from clonos.core.model.metric_series import Metric, MetricFamily, MetricKind, MetricSeries, MetricTable
from clonos.core.values import decode_value, encode_value

MODEL_REQUESTS: Final = Metric(
    MetricKind.COUNTER, "clonos_model_requests", "Requests that models have answered.", ("model",)
)
MODEL_TOKENS: Final = Metric(
    MetricKind.COUNTER, "clonos_model_tokens", "Tokens that models have used.", ("model", "kind")
)
MODEL_COST: Final = Metric(
    MetricKind.COUNTER, "clonos_model_cost", "Money that models have cost, by their prices=.", ("model", "currency")
)
MODEL_SPENT: Final = Metric(
    MetricKind.GAUGE,
    "clonos_model_spent",
    "Money that counts towards the part of the budget that this task has.",
    ("model", "currency"),
)


class CallUse(NamedTuple):
    """Usage of one request. ``prompt_tokens`` has ``cached_tokens`` too. ``cost``: 0 without prices."""

    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float
    currency: str


_USE: Final = (str, int, int, int, float, str)
"""Types of the fields of a ``CallUse``."""


class CallAccount:
    """Account of what the recorded calls of a task have used. ``tasks``: those of its step, which have equal parts of a
    limit."""

    def __init__(self, table: MetricTable, tasks: int) -> None:
        self._table, self.tasks = table, tasks

    def count_outcome(self, outcome: bytes) -> None:
        """Counts what a logged call has used. Any other outcome costs a look at its first byte.

        Raises: OutcomeMalformed.
        """
        if used := usage_part(outcome):
            self.count(_decoded(used))

    def count(self, used: Iterable[CallUse]) -> None:
        """Counts what requests have used."""
        cell = self._table.cell
        for use in used:
            cell(MODEL_REQUESTS, (use.model,))[0] += 1
            kinds = (
                ("prompt", use.prompt_tokens - use.cached_tokens),
                ("cached", use.cached_tokens),
                ("completion", use.completion_tokens),
            )
            for kind, tokens in kinds:
                if tokens:
                    cell(MODEL_TOKENS, (use.model, kind))[0] += tokens
            if use.cost:
                cell(MODEL_COST, (use.model, use.currency))[0] += use.cost
                cell(MODEL_SPENT, (use.model, use.currency))[0] += use.cost

    def spent(self, model: str, currency: str) -> float:
        """Returns what counts towards the budget of a model in this task."""
        return self._table.value(MODEL_SPENT, (model, currency))


_noting: ContextVar[tuple[CallAccount, list[CallUse]] | None] = ContextVar("clonos_call_usage", default=None)


def _decoded(used: bytes) -> list[CallUse]:
    found = decode_value(used)
    if not isinstance(found, list) or not all(type(each) is tuple and tuple(map(type, each)) == _USE for each in found):
        raise OutcomeMalformed("what it has used is malformed")
    return [CallUse(*each) for each in found]


def outcome_of(service: str, perform: Callable[[str], object], key: str, account: CallAccount | None = None) -> bytes:
    """Makes a call of ``service``; returns the bytes of what it returned, or of the exception that it raised, with what
    it has used. ``account``: that of the task; None for a call whose use is part of another outcome."""
    if account is None:
        return _outcome_of(service, perform, key)
    notes: list[CallUse] = []
    token = _noting.set((account, notes))
    try:
        outcome = _outcome_of(service, perform, key)
    finally:
        _noting.reset(token)
    return with_usage(outcome, encode_value([tuple(each) for each in notes])) if notes else outcome


def _outcome_of(service: str, perform: Callable[[str], object], key: str) -> bytes:
    try:
        return encode_outcome(service, perform(key))
    except Exception as error:  # noqa: BLE001  the call's outcome, which user code gets live and in replay
        return encode_outcome(service, error)


def account_here() -> CallAccount | None:
    """Returns the account of the task whose recorded call the code here belongs to, None outside of such a call."""
    found = _noting.get()
    return None if found is None else found[0]


def note_use(use: CallUse) -> None:
    """Adds a note to the recorded call that the code here belongs to."""
    found = _noting.get()
    assert found is not None, "only the code of a recorded call has an account"
    found[1].append(use)


def spread_spending(
    families: tuple[MetricFamily, ...], tasks: Iterable[Iterable[MetricFamily]], count: int
) -> tuple[MetricFamily, ...]:
    """Returns the metrics of a task with an equal part of what all ``tasks`` of its step have spent. ``count``: the
    number of tasks from now on. So the budget of the step holds, whatever its width was."""
    spent: dict[tuple[str, ...], float] = {}
    for found in tasks:
        for family in found:
            if family.metric.name == MODEL_SPENT.name:
                for series in family.series:
                    spent[series.labels] = spent.get(series.labels, 0.0) + series.numbers[0]
    rest = tuple(family for family in families if family.metric.name != MODEL_SPENT.name)
    if not spent:
        return rest
    series_of = tuple(MetricSeries(labels, (total / count,)) for labels, total in spent.items())
    return (*rest, MetricFamily(MODEL_SPENT, series_of))
