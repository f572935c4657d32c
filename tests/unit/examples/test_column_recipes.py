"""The recipes over columns give what their first sentence says, although their processes die: in simulated clusters."""

from __future__ import annotations

import importlib
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from clonos import col
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


def test_the_iceberg_recipe_appends_each_purchase_of_the_morning_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the catalog is there
    recipe = importlib.import_module("iceberg_purchases")

    def check(outputs: Outputs) -> None:
        assert sorted(row["number"] for row in outputs["output"]) == list(range(recipe.NOON))

    crash_test(recipe.append("morning", col("number") < recipe.NOON), seeds=SEEDS, check=check)


def test_the_iceberg_recipe_sums_up_each_purchase_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the catalog is there
    purchases: list[Any] = [
        {"number": number, "customer": "ab"[number % 2], "item": "tea", "cents": number} for number in range(40)
    ]

    def check(outputs: Outputs) -> None:
        for number, customer in enumerate("ab"):
            cents = [row["cents"] for row in outputs.rows if row["customer"] == customer]
            assert cents == list(accumulate(range(number, 40, 2)))

    crash_test(importlib.import_module("iceberg_purchases").spent_since(0), purchases, SEEDS, check)
