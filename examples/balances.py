"""Keep the balance of each account in a SQLite table, exactly once.

Gives one row per account with the sum of its bookings. Each row is replaced in one transaction with the number of the
booking that led to it, so no booking is lost or counted twice, whichever process dies.

    clonos run examples/balances.py
    sqlite3 balances.db 'select * from balances'
"""

from __future__ import annotations

from typing import Any

from clonos import Job, sqlite, values

BOOKINGS = [{"account": f"account {number % 7}", "cents": number % 11 - 4} for number in range(300)]


def book(account: str, balance: int | None, booking: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    balance = (balance or 0) + booking["cents"]
    return balance, {"account": account, "cents": balance}  # the new state, and the result


job = Job("balances", parallelism=2, checkpoint_every="500ms")
balances = job.source(values(BOOKINGS), name="bookings").key_by("account").stateful_map(book, name="book")
balances.key_by("account").sink(
    sqlite("balances.db", "balances", columns=["account", "cents"], upsert="account"), name="balances"
)
