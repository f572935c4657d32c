"""Limits of a model: requests and tokens a minute, and a budget of money. What models use is counted here too.

A limit is that of a step, and each of its tasks has an equal part. Money that logged calls have cost is state of the
task (``clonos.core.log.call_usage``), so a successor goes on with it. Rates need no state: requests are spread evenly,
and a successor begins with one request, and without tokens that it would have to wait for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from clonos.core.log.call_usage import CallAccount, CallUse, account_here, note_use
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.metric_series import MetricTable
from clonos.io.system.pace import Pace
from clonos.io.system.wall_clock import monotonic_ns, sleep_s
from clonos_services.http_session import is_transported
from clonos_services.model_answer import ModelCallInvalid, Usage

NANOSECONDS_PER_SECOND: Final = 1_000_000_000
NANOSECONDS_PER_MINUTE: Final = 60 * NANOSECONDS_PER_SECOND
TOKENS_PRICED: Final = 1_000_000
CURRENCY: Final = "USD"
MONEY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]{3})\s*")
PRICES: Final = ("input", "cached_input", "output", "currency")

Prices = Mapping[str, Any]


class BudgetExceeded(EnvironmentFault):
    """The calls of a step have cost what its ``budget=`` allows, so a model is not asked."""

    model: str
    spent: float
    budget: float
    currency: str
    tasks: int

    def __str__(self) -> str:
        part = f", the part of this task, one of {self.tasks}" if self.tasks > 1 else ""
        return (
            f"the model {self.model} is not asked: its calls have cost {self.spent:g} {self.currency}, and its budget"
            f" is {self.budget:g} {self.currency}{part}. Raise budget=, or give the model a fallback=."
        )


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices of a million tokens. ``cached``: of tokens of the prompt that the server had in its cache."""

    prompt: float
    cached: float
    completion: float
    currency: str

    def cost(self, usage: Usage) -> float:
        """Returns what tokens cost."""
        priced = (
            (usage.prompt_tokens - usage.cached_tokens) * self.prompt
            + usage.cached_tokens * self.cached
            + usage.completion_tokens * self.completion
        )
        return priced / TOKENS_PRICED


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits of a model in a step; None for what is not limited. Made by ``limits_of``."""

    per_minute: float | None
    tokens_per_minute: float | None
    budget: float | None
    tariff: Tariff | None

    def begin(self, model: str) -> None:
        """Waits until a request may be sent, inside a recorded call. Raises: BudgetExceeded."""
        account = account_here() or _account_without_task
        self._check_budget(model, account)
        if not is_transported() and (pause_s := self.turn_s(model)):
            sleep_s(pause_s)
            self._check_budget(model, account)  # other calls have ended in the meantime

    def turn_s(self, model: str) -> float:
        """Takes the next turn of a request; returns how long it is until then in seconds."""
        if self.per_minute is None and self.tokens_per_minute is None:
            return 0.0
        account = account_here() or _account_without_task
        pause_ns = _pace_of(account, model).take(monotonic_ns(), _share_ns(self.per_minute, account.tasks))
        return pause_ns / NANOSECONDS_PER_SECOND

    def _check_budget(self, model: str, account: CallAccount) -> None:
        if self.budget is not None and self.tariff is not None:
            spent, budget = account.spent(model, self.tariff.currency), self.budget / account.tasks
            if spent >= budget:
                raise BudgetExceeded(model, spent, budget, self.tariff.currency, account.tasks)

    def end(self, model: str, usage: Usage) -> None:
        """Notes what a reply has used, inside a recorded call."""
        cost, currency = (self.tariff.cost(usage), self.tariff.currency) if self.tariff else (0.0, CURRENCY)
        here = account_here()
        account = here or _account_without_task
        tokens = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        use = CallUse(model, *tokens, cost, currency, account.step)
        if here is None:
            account.count([use])
        else:
            note_use(use)
        if self.tokens_per_minute is not None:
            owed_ns = usage.total_tokens * _share_ns(self.tokens_per_minute, account.tasks)
            _pace_of(account, model).put_off(monotonic_ns(), owed_ns)

    def cost(self, usage: Usage) -> float:
        """Returns what tokens cost, 0 without prices."""
        return self.tariff.cost(usage) if self.tariff else 0.0


_account_without_task: Final = CallAccount(MetricTable(), 1)
"""Account of all calls of this process outside of jobs."""

_paces: Final[WeakKeyDictionary[CallAccount, dict[str, Pace]]] = WeakKeyDictionary()


def _pace_of(account: CallAccount, model: str) -> Pace:
    return _paces.setdefault(account, {}).setdefault(model, Pace())  # both are atomic: threads may ask at once


def _share_ns(per_minute: float | None, tasks: int) -> int:
    """Returns the time between two units of a rate in one of the tasks."""
    return 0 if per_minute is None else int(NANOSECONDS_PER_MINUTE * tasks / per_minute)


def limits_of(
    per_minute: float | None,
    tokens_per_minute: float | None,
    budget: Any,
    prices: Prices | None,
    priced: tuple[str, ...],
) -> ModelLimits:
    """Returns the limits of a model. ``priced``: the prices that it has.

    Raises: ModelCallInvalid: one of them cannot be used.
    """
    for name, rate in (("per_minute", per_minute), ("tokens_per_minute", tokens_per_minute)):
        if rate is not None and (not _is_number(rate) or rate <= 0):
            raise ModelCallInvalid(f"{name}= is {rate!r:.80}, expected a number above 0")
    if budget is None:
        tariff = None if prices is None else _tariff(prices, priced, None)
        return ModelLimits(per_minute, tokens_per_minute, None, tariff)
    found = MONEY.fullmatch(budget) if isinstance(budget, str) else None
    if found is None:
        raise ModelCallInvalid(f'budget= is {budget!r:.80}, expected an amount and a currency, such as "20 USD"')
    if prices is None:
        raise ModelCallInvalid('budget= needs prices= of a million tokens, such as {"input": 2.5, "output": 10}')
    return ModelLimits(per_minute, tokens_per_minute, float(found[1]), _tariff(prices, priced, found[2].upper()))


def _tariff(prices: Any, priced: tuple[str, ...], currency: str | None) -> Tariff:
    if not isinstance(prices, Mapping) or not set(priced) <= prices.keys() <= set(PRICES):
        raise ModelCallInvalid(
            f"prices= is {prices!r:.200}, expected a dict with the prices of a million tokens, {' and '.join(priced)},"
            " and if they differ cached_input and currency"
        )
    numbers = {name: prices[name] for name in PRICES[:-1] if name in prices}
    if not all(_is_number(price) and price >= 0 for price in numbers.values()):
        raise ModelCallInvalid(f"prices= is {prices!r:.200}, expected numbers from 0 on")
    own = str(prices.get("currency", currency or CURRENCY)).upper()
    if currency is not None and own != currency:
        raise ModelCallInvalid(f"budget= is in {currency}, and prices= are in {own}")
    prompt = float(numbers["input"])
    return Tariff(prompt, float(numbers.get("cached_input", prompt)), float(numbers.get("output", 0)), own)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
