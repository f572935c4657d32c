"""Job whose records the tests debug: prices in euros, and their total by name."""

from __future__ import annotations

from typing import Any

from clonos import Job, clock, collect, values

RATES = {"usd": 1.0, "gbp": 1.5}
ROWS = [{"name": ("ann", "bob", "eve")[n % 3], "n": n, "currency": ("usd", "gbp")[n % 2]} for n in range(60)]
UNKNOWN = {"name": "ann", "n": 60, "currency": "eur"}


def priced(row: dict[str, Any]) -> dict[str, Any]:
    """Returns the price of a row."""
    return {"name": row["name"], "euros": row["n"] * RATES[row["currency"]], "at": clock.time_ns()}


def total(name: str, so_far: float | None, row: dict[str, Any]) -> tuple[float, tuple[str, float]]:
    """Adds the price of a row."""
    found = (so_far or 0) + row["euros"]
    return found, (name, found)


def job(rows: list[dict[str, Any]] = ROWS, price: Any = priced, add: Any = total) -> Job:
    """Creates the job."""
    made = Job("prices")
    keyed = made.source(values(rows), name="shop").rebalance().map(price, name="priced").key_by("name")
    keyed.stateful_map(add, name="total").rebalance().sink(collect(), name="out")
    return made
