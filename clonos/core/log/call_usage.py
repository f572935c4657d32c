"""Usage of recorded calls, such as the tokens and the money of models: part of their outcomes (protocol 2).

The code of a call notes what it uses. The outcome of the call in the log has these notes, whether it is a value or an
exception, and the task counts them where the outcome arrives, live and in a replay. So what a logged call has used
counts once, whatever dies; what a call without an entry has used is lost with its process.

The counts are metrics, which are state of the task. What counts towards a budget has the step, because a task
may run several.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable
from contextvars import ContextVar
from types import FrameType
from typing import Final, NamedTuple

from clonos.core.log.call_outcomes import OutcomeMalformed, encode_outcome, usage_part, with_usage
from clonos.core.model.metric_series import Metric, MetricFamily, MetricKind, MetricSeries, MetricTable
from clonos.core.ports.step_code import step_of
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
    "Money that counts towards the part of the budget of a step that this task has.",
    ("model", "currency", "step"),
)


class CallUse(NamedTuple):
    """Usage of one request. ``prompt_tokens`` has ``cached_tokens`` too. ``cost``: 0 without prices.
    ``step``: the one whose code has made it, "" outside of steps."""

    model: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float
    currency: str
    step: str


_USE: Final = (str, int, int, int, float, str, str)
"""Types of the fields of a ``CallUse``."""


class CallAccount:
    """Account of what the recorded calls of a task have used, or of those of one ``step`` in it. ``tasks``: those of
    the step, which have equal parts of a limit."""

    def __init__(self, table: MetricTable, tasks: int, step: str = "") -> None:
        self._table, self.tasks, self.step = table, tasks, step
        self._of_steps: dict[str, CallAccount] = {}

    def of_step(self, step: str) -> CallAccount:
        """Returns the account of a step in the task, the same one each time."""
        if step == self.step:
            return self
        # One operation: threads may ask at once.
        return self._of_steps.setdefault(step, CallAccount(self._table, self.tasks, step))

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
                cell(MODEL_SPENT, (use.model, use.currency, use.step))[0] += use.cost

    def spent(self, model: str, currency: str) -> float:
        """Returns what counts towards the budget of a model in this step of the task."""
        return self._table.value(MODEL_SPENT, (model, currency, self.step))


class _Noting:
    """Notes of a recorded call under way. ``frame``: where the task makes it, None if ``account`` is that of a step.

    The step is looked up on the stack when a note needs it, so other calls pay nothing.
    """

    __slots__ = ("account", "frame", "notes")

    def __init__(self, account: CallAccount, frame: FrameType | None) -> None:
        self.account, self.frame = account, frame
        self.notes: list[CallUse] = []

    def account_of_step(self) -> CallAccount:
        """Returns the account of the step whose code runs. Any thread of the call may ask."""
        if (frame := self.frame) is not None:
            self.account, self.frame = self.account.of_step(step_of(frame)), None
        return self.account

    def close(self) -> None:
        """Lets go of the frame, which has this object."""
        self.frame = None


_noting: ContextVar[_Noting | None] = ContextVar("clonos_call_usage", default=None)


def _decoded(used: bytes) -> list[CallUse]:
    found = decode_value(used)
    if not isinstance(found, list) or not all(type(each) is tuple and tuple(map(type, each)) == _USE for each in found):
        raise OutcomeMalformed("what it has used is malformed")
    return [CallUse(*each) for each in found]


def outcome_of(service: str, perform: Callable[[str], object], key: str, account: CallAccount | None = None) -> bytes:
    """Makes a call of ``service``; returns the bytes of what it returned, or of the exception that it raised, with what
    it has used. ``account``: that of the step, or of the task if the step is on the stack; None for a call whose use is
    part of another outcome."""
    if account is None:
        return _outcome_of(service, perform, key)
    noting = _Noting(account, None if account.step else sys._getframe())
    token = _noting.set(noting)
    try:
        outcome = _outcome_of(service, perform, key)
    finally:
        _noting.reset(token)
        noting.close()
    return with_usage(outcome, encode_value([tuple(each) for each in noting.notes])) if noting.notes else outcome


def _outcome_of(service: str, perform: Callable[[str], object], key: str) -> bytes:
    try:
        return encode_outcome(service, perform(key))
    except Exception as error:  # noqa: BLE001  the call's outcome, which user code gets live and in replay
        return encode_outcome(service, error)


def account_here() -> CallAccount | None:
    """Returns the account of the step whose recorded call the code here belongs to, None outside of such a call."""
    found = _noting.get()
    return None if found is None else found.account_of_step()


def note_use(use: CallUse) -> None:
    """Adds a note to the recorded call that the code here belongs to."""
    found = _noting.get()
    assert found is not None, "only the code of a recorded call has an account"
    found.notes.append(use)


def spread_spending(
    families: tuple[MetricFamily, ...], tasks: Iterable[Iterable[MetricFamily]], steps: Container[str], count: int
) -> tuple[MetricFamily, ...]:
    """Returns the metrics of a task with an equal part of what its steps have spent in all ``tasks`` of the job. So the
    budget of a step holds, whatever its width was and whatever it was chained with. ``count``: the number of tasks that
    run ``steps`` from now on."""
    spent: dict[tuple[str, ...], float] = {}
    for found in tasks:
        for family in found:
            if family.metric.name == MODEL_SPENT.name:
                for series in family.series:
                    if series.labels[-1] in steps:
                        spent[series.labels] = spent.get(series.labels, 0.0) + series.numbers[0]
    rest = tuple(family for family in families if family.metric.name != MODEL_SPENT.name)
    if not spent:
        return rest
    series_of = tuple(MetricSeries(labels, (total / count,)) for labels, total in spent.items())
    return (*rest, MetricFamily(MODEL_SPENT, series_of))
