"""Recipes whose input comes from a server give what they promise for its records, although their processes die."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from clonos import values
from clonos.connectors.postgres import Change
from clonos.testing import Outputs, crash_test
from tests.harnesses.model_server import completion, embedding, vectors

pytestmark = pytest.mark.slow


def inserted(number: int) -> Change:
    """A movement as the server reports it."""
    row = {"id": number, "item": f"item {number % 5}", "pieces": number % 7 - 3}
    return Change("insert", "public.movements", row, None, 100 + number, number, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.slow
def test_the_stock_recipe_has_the_sum_of_the_movements_of_each_item() -> None:
    changes = [inserted(number) for number in range(60)]
    removed: Any = Change("delete", "public.movements", None, {"id": 1}, 200, 99, datetime(2026, 1, 1, tzinfo=UTC))

    def check(outputs: Outputs) -> None:
        sums: Counter[str] = Counter()
        for change in changes:
            sums[change.row["item"]] += change.row["pieces"]
        assert {row["item"]: row["pieces"] for row in outputs["stock"]} == sums

    crash_test(importlib.import_module("postgres_stock").job, [*changes, removed], range(4), check, compare=False)


def test_the_kafka_recipe_has_the_last_total_of_each_customer() -> None:
    orders = [{"customer": f"c{number % 3}", "cents": number} for number in range(30)]
    seen: list[dict[str, Any]] = []

    def check(outputs: Outputs) -> None:
        last = {row["customer"]: row for row in sorted(outputs["out"], key=lambda row: int(row["orders"]))}
        sums = {f"c{number}": sum(range(number, 30, 3)) for number in range(3)}
        assert {customer: row["cents"] for customer, row in last.items()} == sums
        assert {row["orders"] for row in last.values()} == {10}
        seen.append(last)

    crash_test(importlib.import_module("kafka_totals").job, orders, range(4), check)
    assert seen


def test_the_history_recipe_has_every_total_of_a_customer_from_the_files_on() -> None:
    recipe = importlib.import_module("history_then_live")
    history = [json.loads(line) for line in recipe.HISTORY.read_text("utf-8").splitlines()]
    live = [{"customer": ("ann", "new")[number % 2], "cents": number} for number in range(20)]
    expected = dict[str, list[tuple[int, int]]]()
    for order in [*history, *live]:
        orders, cents = expected.setdefault(order["customer"], [(0, 0)])[-1]
        expected[order["customer"]].append((orders + 1, cents + order["cents"]))

    def check(outputs: Outputs) -> None:
        totals = [(row["customer"], row["orders"], row["cents"]) for row in outputs["spent"]]
        assert sorted(totals) == sorted((name, *total) for name, all_ in expected.items() for total in all_[1:])

    assert crash_test(lambda: recipe.make_job(values(live)), seeds=range(4), check=check, compare=False).injected


@pytest.mark.slow
def test_the_rabbitmq_recipe_has_an_alert_for_each_third_hot_measurement_in_a_row() -> None:
    heat = {
        "a": [90, 91, 92, 93, 20, 90, 90, 90],
        "b": [90, 90, 20, 90, 90, 20, 90, 90],
        "c": [81, 82, 83, 84, 85, 1, 2, 3],
    }
    measured = [{"sensor": name, "celsius": heat[name][number]} for number in range(8) for name in heat]

    def check(outputs: Outputs) -> None:
        alerts = Counter((row["sensor"], row["celsius"]) for row in outputs["out"])
        assert alerts == {("a", 92): 1, ("a", 90): 1, ("c", 83): 1}

    crash_test(importlib.import_module("rabbitmq_alerts").job, measured, range(4), check)


def test_the_nats_recipe_has_each_train_whose_delay_has_grown_by_five_minutes() -> None:
    delays = {"ice 1": [0, 3, 5, 9, 10, 12, 4, 15], "re 2": [4, 4, 4, 4, 30, 31, 34, 35]}
    departures = [{"train": train, "delay": delays[train][turn]} for turn in range(8) for train in delays]

    def check(outputs: Outputs) -> None:
        grown = Counter((row["train"], row["delay"]) for row in outputs["out"])
        assert grown == Counter([("ice 1", 5), ("ice 1", 10), ("ice 1", 15), ("re 2", 30), ("re 2", 35)])

    crash_test(importlib.import_module("nats_delays").job, departures, range(4), check)


def test_the_webhooks_recipe_has_what_each_customer_has_paid() -> None:
    events = [{"customer": f"c{number % 3}", "amount": number} for number in range(21)]

    def check(outputs: Outputs) -> None:
        paid = {f"c{first}": sum(range(first, 21, 3)) for first in range(3)}
        assert {row["customer"]: row["paid"] for row in sorted(outputs["totals"], key=lambda row: row["paid"])} == paid
        assert len(outputs["totals"]) == 21

    crash_test(importlib.import_module("webhooks").job, events, range(4), check)


def test_the_poll_recipe_has_what_each_shop_has_sold() -> None:
    orders = [{"shop": f"s{number % 3}", "amount": number} for number in range(21)]

    def check(outputs: Outputs) -> None:
        sold = {f"s{first}": sum(range(first, 21, 3)) for first in range(3)}
        assert {row["shop"]: row["sold"] for row in sorted(outputs["totals"], key=lambda row: row["sold"])} == sold
        assert len(outputs["totals"]) == 21

    crash_test(importlib.import_module("http_poll").job, orders, range(4), check)


def test_the_websocket_recipe_has_what_was_traded_of_each_paper() -> None:
    trades = [{"number": number, "paper": f"p{number % 3}", "quantity": number} for number in range(21)]

    def check(outputs: Outputs) -> None:
        traded = {f"p{first}": sum(range(first, 21, 3)) for first in range(3)}
        assert {
            row["paper"]: row["traded"] for row in sorted(outputs["totals"], key=lambda row: row["traded"])
        } == traded
        assert len(outputs["totals"]) == 21

    crash_test(importlib.import_module("websocket_trades").job, trades, range(4), check)


def test_the_post_recipe_sends_the_orders_of_three_or_more() -> None:
    recipe = importlib.import_module("http_post")
    orders = [json.loads(line) for line in recipe.ORDERS.read_text("utf-8").splitlines()]
    large = [order["order"] for order in orders if order["quantity"] >= 3]
    assert 0 < len(large) < len(orders)

    def check(outputs: Outputs) -> None:
        assert sorted(order["order"] for order in outputs["out"]) == large

    crash_test(recipe.job, seeds=range(4), check=check)


def models(request: Any) -> Any:
    """Answers as a server of models does."""
    asked = json.loads(request.body)
    if request.url.endswith("/embeddings"):
        return vectors({**asked, "dimensions": 384})
    return completion(f"{len(asked['messages'][0]['content'])} characters")


@pytest.mark.slow
def test_the_retrieval_recipe_stores_each_passage_with_its_vector_and_answers_each_question_from_passages() -> None:
    recipe = importlib.import_module("retrieval")
    texts = {file.name: file.read_text("utf-8") for file in recipe.TEXTS.iterdir()}

    def check_table(outputs: Outputs) -> None:
        rows = {row["place"]: row for row in outputs["table"]}
        assert {row["text"] for row in rows.values()} == {text.strip() for text in texts.values()}
        assert all(row["embedding"] == embedding(row["text"], 384) for row in rows.values())

    def nearest(vector: list[float]) -> list[dict[str, Any]]:
        return [{"place": f"{vector[0]:g}", "text": "passage", "distance": 0.5}]

    def check_answers(outputs: Outputs) -> None:
        assert [row["question"] for row in outputs["answered"]] == recipe.QUESTIONS
        for row in outputs["answered"]:
            assert row["places"] == [f"{embedding(row['question'], 384)[0]:g}"]
            assert row["answer"].endswith("characters")

    assert crash_test(recipe.index, seeds=range(2), check=check_table, http=models, compare=False).injected
    services = {recipe.nearest: nearest}
    assert crash_test(recipe.answers, None, range(2), check_answers, http=models, services=services).injected
