"""The recipes over columns give what their first sentence says, although their processes die: in simulated clusters."""

from __future__ import annotations

import importlib
from typing import Any

from clonos.testing import Outputs, crash_test

SEEDS = range(4)


def test_the_expressions_recipe_prices_the_dear_bids() -> None:
    bids: list[Any] = [
        {"auction": number % 7, "price": number * 50, "url": f"http{'s' * (number % 2)}://shop/?item=a{'b' * number}"}
        for number in range(24)
    ]

    def check(outputs: Outputs) -> None:
        expected = [
            {
                "auction": bid["auction"],
                "dollars": round(bid["price"] * 0.908, 2),
                "item": bid["url"].partition("=")[2],
                "kind": "top" if bid["price"] >= 900 else "dear",
            }
            for bid in bids
            if bid["price"] >= 500 and bid["url"].startswith("https")
        ]
        assert sorted(outputs.rows, key=str) == sorted(expected, key=str)
        assert len(expected) == 7

    crash_test(importlib.import_module("columns_bids").job, bids, SEEDS, check)
