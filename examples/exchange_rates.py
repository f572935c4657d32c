"""Convert payments at the exchange rate that was valid when they were made.

Gives each payment in euros. A payment waits until event time shows that its rate has come, so the result does not
depend on which stream is faster.

    clonos run examples/exchange_rates.py
"""

from __future__ import annotations

from typing import TypedDict

from clonos import Job, stdout, values


class Payment(TypedDict):
    """Payment in some currency."""

    id: int
    currency: str
    amount: int
    at: str


class Rate(TypedDict):
    """Euros for one unit of a currency, from a time on."""

    currency: str
    euros: float
    at: str


PAYMENTS: list[Payment] = [
    {"id": 1, "currency": "USD", "amount": 100, "at": "2023-05-01T09:30:00Z"},
    {"id": 2, "currency": "GBP", "amount": 10, "at": "2023-05-01T09:45:00Z"},
    {"id": 3, "currency": "USD", "amount": 100, "at": "2023-05-01T10:00:00Z"},
    {"id": 4, "currency": "USD", "amount": 100, "at": "2023-05-01T12:00:00Z"},
    {"id": 5, "currency": "CHF", "amount": 50, "at": "2023-05-01T12:30:00Z"},
]
RATES: list[Rate] = [
    {"currency": "USD", "euros": 0.9, "at": "2023-05-01T09:00:00Z"},
    {"currency": "GBP", "euros": 1.2, "at": "2023-05-01T09:00:00Z"},
    {"currency": "USD", "euros": 0.8, "at": "2023-05-01T10:00:00Z"},
    {"currency": "USD", "euros": 0.7, "at": "2023-05-01T13:00:00Z"},
]


def converted(payment: Payment, rate: Rate | None) -> tuple[int, float | None]:
    """Converts a payment; None without a rate."""
    return payment["id"], None if rate is None else payment["amount"] * rate["euros"]


job = Job("exchange_rates", parallelism=2, checkpoint_every="1s")
payments = job.source(values(PAYMENTS), name="payments", timestamps="at", parallelism=1)
rates = job.source(values(RATES), name="rates", timestamps="at", parallelism=1)
payments.join_as_of(rates, on="currency", select=converted, name="converted").sink(stdout(), name="euros")
