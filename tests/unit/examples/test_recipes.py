"""Each recipe of examples/ gives what its first sentence says, although its processes die: in simulated clusters."""

from __future__ import annotations

import gzip
import importlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clonos import Job, values
from clonos.testing import Outputs, crash_test
from tests.tidy.source import ROOT

EXAMPLES = ROOT / "examples"
DATA = EXAMPLES / "data"
SEEDS = range(2)
WITH_OTHER_TESTS = (
    "shop_server",
    "model_server",
    "test_rate_limit",
    "resume",
    "gzip_sink",
    "spark_coupons",
    "pages",
    "self_scaling",
)
"""Files that tests/processes/jobs/test_recipes_on_processes.py and tests/spark/test_frame_outputs.py run."""
WITH_OTHER_INPUT = (
    "outbox_source",
    "arrow_batches",
    "columns_bids",
    "webhooks",
    "http_poll",
    "websocket_trades",
    "http_post",
    "syslog_udp",
    "kafka_totals",
    "postgres_stock",
    "retrieval",
    "rabbitmq_alerts",
    "nats_delays",
    "history_then_live",
    "iceberg_purchases",
)
"""Recipes whose tests stand below the table, in test_column_recipes.py or in test_connector_recipes.py."""


def _json_lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def _recipe(name: str) -> Any:
    return importlib.import_module(name)


def _counts_every_word(outputs: Outputs) -> None:
    text = "\n".join(file.read_text("utf-8") for file in (DATA / "texts").iterdir())
    counted: Counter[str] = Counter()
    for row in outputs["counts"]:
        counted[row["word"]] += row["count"]
    assert counted == Counter(_recipe("word_count").words(text))
    assert counted["to"] == 6


def _counts_the_failed_requests_of_each_page(outputs: Outputs) -> None:
    lines = (DATA / "access.log").read_text("utf-8").splitlines()
    entries = [line for line in lines if line[:3] == "192"]
    pages = [line.split()[6].partition("?")[0] for line in entries if int(line.split()[8]) >= 400]
    assert Counter(row["page"] for row in outputs["failed"]) == Counter(pages)
    assert dict(outputs["pages"]) == Counter(pages)
    assert sorted(error.record for error in outputs["errors"]) == sorted(set(lines) - set(entries)) * 2


def _passes_each_payment_on_once(outputs: Outputs) -> None:
    payments = {payment["id"]: payment for payment in _json_lines("payments.jsonl")}
    assert len(payments) < len(_json_lines("payments.jsonl"))
    assert sorted(outputs.rows, key=lambda row: row["id"]) == sorted(payments.values(), key=lambda row: row["id"])


def _prices_and_places_each_order_once(outputs: Outputs) -> None:
    orders = _json_lines("orders.jsonl")
    assert sorted(row["order"] for row in outputs["placed"]) == [order["order"] for order in orders]
    assert all(row["price"] == 10 * len(row["product"]) for row in outputs["placed"])
    if not outputs.exposed and not outputs.rollbacks:
        assert len({call.key for call in outputs.calls if call.is_effect}) == len(orders)


def _counts_every_click(outputs: Outputs) -> None:
    counted: Counter[str] = Counter()
    for row in outputs["counts"]:
        counted[row["page"]] += row["clicks"]
    assert counted == Counter(click["page"] for click in _json_lines("clicks.jsonl"))


def _raises_each_alert_at_the_third_reading(outputs: Outputs) -> None:
    expected, streaks = [], Counter[str]()
    for reading in _json_lines("readings.jsonl"):
        streaks[reading["sensor"]] = streaks[reading["sensor"]] + 1 if reading["celsius"] > 80 else 0
        if streaks[reading["sensor"]] == 3:
            expected.append((reading["sensor"], reading["number"]))
    assert len(expected) >= 4
    assert sorted((row.sensor, row.number) for row in outputs.rows) == sorted(expected)


def _reminds_of_the_carts_without_an_order(outputs: Outputs) -> None:
    reminders = sorted((row["cart"], row["items"]) for row in outputs.rows)
    assert reminders == [("c1", 2), ("c4", 2), ("c5", 1)]


def _admits_five_requests_at_once(outputs: Outputs) -> None:
    decided = [(number, client) for number, client, _ in outputs.rows]
    assert sorted(decided) == sorted(_recipe("rate_limit").REQUESTS)
    assert Counter(decision for _, _, decision in outputs.rows)["admitted"] >= 10


def _counts_what_it_has_sampled(outputs: Outputs) -> None:
    sampled = Counter(row["group"] for row in outputs["sample"])
    assert 0 < sum(sampled.values()) < 2_000
    last: dict[str, int] = {}
    for group, count in outputs["counts"]:
        last[group] = max(count, last.get(group, 0))
    assert last == sampled


def _has_the_balance_of_each_account(outputs: Outputs) -> None:
    balances: Counter[str] = Counter()
    for booking in _recipe("balances").BOOKINGS:
        balances[booking["account"]] += booking["cents"]
    assert {row["account"]: row["cents"] for row in outputs["balances"]} == balances


def _sums_up_the_purchases_of_each_customer(outputs: Outputs) -> None:
    purchases = _json_lines("purchases.jsonl")
    customers = {purchase["customer"] for purchase in purchases}
    assert sorted(row["customer"] for row in outputs["customers"]) == sorted(customers)
    for row in outputs["customers"]:
        cents = sorted(purchase["cents"] for purchase in purchases if purchase["customer"] == row["customer"])
        assert (row["purchases"], row["total"]) == (len(cents), sum(cents))
        assert row["mean"] == sum(cents) / len(cents)
        assert abs(row["p95"] - cents[int(0.95 * (len(cents) - 1))]) <= 0.01 * row["p95"]
        assert [purchases[number]["cents"] for number in row["largest"]] == cents[::-1][:3]
    total = sum(purchase["cents"] for purchase in purchases)
    assert outputs["shop_totals"] == [{"purchases": len(purchases), "total": total, "customers": len(customers)}]


def _has_each_order_with_its_shipment_in_time(outputs: Outputs) -> None:
    shipped = {row["order"]: row["shipped"] for row in outputs["described"]}
    assert len(outputs["described"]) == len(_recipe("shipped_orders").ORDERS)
    assert shipped == {
        "o1": "2023-05-01T17:00:00Z",
        "o2": None,
        "o3": "2023-05-04T12:00:00Z",
        "o4": "2023-05-06T09:00:00Z",
    }


def _converts_each_payment_at_its_rate(outputs: Outputs) -> None:
    assert sorted(outputs["euros"]) == [(1, 90.0), (2, 12.0), (3, 80.0), (4, 80.0), (5, None)]


def _checks_each_payment_by_some_rules(outputs: Outputs) -> None:
    recipe = _recipe("fraud_rules")
    limits = {"de": {500, 700, recipe.DEFAULT_LIMIT}, "fr": {2_000, recipe.DEFAULT_LIMIT}, "it": {recipe.DEFAULT_LIMIT}}
    found = [row["id"] for row in outputs["alerts"]]
    assert len(found) == len(set(found))
    for payment in recipe.PAYMENTS:
        above = {payment["amount"] > limit for limit in limits[payment["country"]]}
        assert (payment["id"] in found) in above
    for card in {row["card"] for row in outputs["alerts"]}:
        counted = sorted(row["suspicious"] for row in outputs["alerts"] if row["card"] == card)
        assert counted == list(range(1, len(counted) + 1))


def _checks_each_payment_by_the_rule_of_its_time(outputs: Outputs) -> None:
    assert sorted((row["id"], row["limit"]) for row in outputs["alerts"]) == [(2, 500), (4, 50), (5, 1_000)]


def _reports_exactly_the_late_readings(outputs: Outputs) -> None:
    readings, latest, late = _recipe("late_report").READINGS, 0, []
    for reading in readings:
        if latest - reading["at"] > 5:
            late.append({**reading, "seconds_behind": latest - reading["at"]})
        latest = max(latest, reading["at"])
    assert 20 < len(late) < 40
    assert sorted(outputs["late"], key=lambda row: row["number"]) == late
    numbers = {row["number"] for row in late}
    in_time = [reading for reading in readings if reading["number"] not in numbers]
    assert sorted(outputs["in_time"], key=lambda row: row["number"]) == in_time


def _sets_damaged_lines_aside(outputs: Outputs) -> None:
    assert dict(outputs["sink"]) == {"ann": 38, "bob": 57}
    assert sorted(error.error.partition(":")[0] for error in outputs["errors"]) == [
        "JSONDecodeError",
        "JSONDecodeError",
        "KeyError",
        "ValueError",
    ]


def _has_the_price_of_each_product_in_order(outputs: Outputs) -> None:
    assert outputs.rows == [(product, 10.0 * len(product)) for product in _recipe("async_calls").PRODUCTS]


def _averages_the_readings_of_each_window(outputs: Outputs) -> None:
    readings = _recipe("sensor_averages").READINGS
    wanted: dict[tuple[str, int], list[float]] = {}
    for reading in readings:
        first = reading["at"] // 10 * 10 + 10
        for until in (first, first + 10, first + 20):
            wanted.setdefault((reading["sensor"], until), []).append(reading["celsius"])
    last: dict[tuple[str, int], Any] = {}
    for row in outputs["averages"]:  # a later result of a window has more readings
        place = row["sensor"], int(row["until"].timestamp())
        last[place] = max(last.get(place, (0, 0.0)), (row["readings"], row["celsius"]))
    assert outputs["late"] == []
    assert last.keys() == wanted.keys()
    for place, values_of in wanted.items():
        assert last[place] == (len(values_of), pytest.approx(sum(values_of) / len(values_of)))


def _divides_the_clicks_into_sessions(outputs: Outputs) -> None:
    start = _recipe("click_sessions").MORNING
    found = sorted(
        (row["user"], int(row["start"].timestamp() - start) // 60, row["minutes"], row["clicks"])
        for row in outputs.rows
    )
    of_a_day = [("ann", 0, 25.0, 3), ("ann", 90, 0.0, 1), ("bob", 1, 0.0, 1), ("bob", 40, 15.0, 2), ("eve", 60, 0.0, 1)]
    assert found == sorted((user, first + day * 1_440, *rest) for day in range(5) for user, first, *rest in of_a_day)


def _smooths_the_readings_of_each_hour(outputs: Outputs) -> None:
    readings = _recipe("rolling_means").READINGS
    expected: dict[tuple[str, int], tuple[int, float]] = {}
    for reading in readings:
        hour, place = reading["at"] // 3_600, (reading["sensor"], reading["at"] // 600)
        before = [
            each["celsius"]
            for each in readings
            if each["sensor"] == reading["sensor"]
            and each["at"] // 3_600 == hour
            and reading["at"] - 1_800 < each["at"] <= reading["at"]
        ]
        expected[place] = max(expected.get(place, (0, 0.0)), (reading["at"], round(sum(before) / len(before), 3)))
    found = {(row["sensor"], int(row["at"].timestamp()) // 600): row["celsius"] for row in outputs.rows}
    assert len(outputs.rows) == len(found) > 60
    assert found == pytest.approx({place: celsius for place, (_, celsius) in expected.items()}, abs=0.002)


def _reports_the_readings_that_no_model_expects(outputs: Outputs) -> None:
    recipe = _recipe("model_per_key")
    found = {(row["house"], (row["at"] - recipe.MIDNIGHT) // 3_600): row for row in outputs.rows}
    assert len(outputs.rows) == len(found)
    assert found.keys() == recipe.FAULTS
    for row in found.values():
        assert row["kilowatts"] - row["expected"] == pytest.approx(5, abs=1)


def _compares_each_price_with_earlier_ones(outputs: Outputs) -> None:
    prices = sorted(_recipe("price_changes").PRICES, key=lambda price: price["at"])
    changes, distances = [], []
    for share in "ab":
        of_share = [price for price in prices if price["share"] == share]
        for place, price in enumerate(of_share):
            change = price["price"] - of_share[place - 1]["price"] if place else None
            changes.append((share, price["at"], change))
            near = [each["price"] for each in of_share[: place + 1] if each["at"] > price["at"] - 600]
            distances.append((share, price["at"], round(price["price"] - sum(near) / len(near), 6)))
    assert len({(share, at) for share, at, _ in changes}) == len(prices)
    assert sorted((row["share"], row["at"], row["change"]) for row in outputs["changes"]) == sorted(changes)
    found = [(row["share"], row["at"].timestamp(), round(row["above mean"], 6)) for row in outputs["distances"]]
    assert sorted(found) == sorted(distances)


def _finds_the_three_tags_of_the_last_ten_minutes(outputs: Outputs) -> None:
    recipe = _recipe("trending_tags")
    assert len({post["at"] // 60 for post in recipe.POSTS}) > 30
    first, last = (choose(post["at"] for post in recipe.POSTS) // 60 for choose in (min, max))
    expected = {}
    for until in range(60 * first + 60, 60 * last + 601, 60):
        counted = Counter(post["tag"] for post in recipe.POSTS if until - 600 <= post["at"] < until)
        expected[until] = sorted(([tag, number] for tag, number in counted.items()), key=_by_number)[:-4:-1]
    found = {int(row["until"].timestamp()): row["tags"] for row in outputs.rows}
    assert len(outputs.rows) == len(found)
    assert found == expected


def _by_number(counted: list[Any]) -> tuple[int, str]:
    return counted[1], counted[0]


def _reports_the_days_of_each_user(outputs: Outputs) -> None:
    recipe = _recipe("user_activity")
    expected: dict[tuple[str, int], list[Any]] = {}
    for action in recipe.ACTIONS:
        day = (action["at"] - recipe.MIDNIGHT) // 86_400
        for user in (action["user"], "all"):
            expected.setdefault((user, day), []).append(action)
    last: dict[tuple[str, int], Any] = {}
    for name in ("activity", "users"):
        for row in sorted(outputs[name], key=lambda row: int(row["actions"])):  # a later result has more actions
            last[row.get("user", "all"), int(row["day"].timestamp() - recipe.MIDNIGHT) // 86_400] = row
    assert last.keys() == expected.keys()
    assert len({day for _, day in expected}) == 4
    for (user, day), actions in expected.items():
        row, times = last[user, day], [action["at"] for action in actions]
        assert row["actions"] == len(actions)
        if user == "all":
            assert row["users"] == len({action["user"] for action in actions})
        else:
            assert row["pages"] == sorted({action["page"] for action in actions})
            assert (row["first"], row["last"]) == (min(times), max(times))


def _has_the_language_of_the_user_of_each_click(outputs: Outputs) -> None:
    languages = {"ann": "en", "bob": "de", "eve": "fr"}
    clicks = _recipe("user_profiles").CLICKS
    assert outputs.rows == [{**click, "language": languages.get(click["user"])} for click in clicks]


def _scores_the_readings_of_known_sensors(outputs: Outputs) -> None:
    halls = {"a": ("north", 60.0), "b": ("south", 75.0)}
    known = [reading for reading in _json_lines("readings.jsonl") if reading["sensor"] in halls]
    scored = sorted(outputs["scored"], key=lambda row: (row["sensor"], row["number"]))
    assert [(row["sensor"], row["number"], row["celsius"]) for row in scored] == sorted(
        (reading["sensor"], reading["number"], reading["celsius"]) for reading in known
    )
    assert all((row["hall"], row["limit"]) == halls[row["sensor"]] for row in scored)
    assert all((row["score"] > 0.5) == (row["celsius"] > 80) for row in scored)


def _appends_each_purchase_once(outputs: Outputs) -> None:
    bought = [(row["customer"], row["item"], row["cents"] / 100) for row in _json_lines("purchases.jsonl")]
    assert sorted((row["customer"], row["item"], row["euros"]) for row in outputs["output"]) == sorted(bought)


def _refunds_each_order_once_and_large_ones_with_an_approval(outputs: Outputs) -> None:
    euros = {row["order"]: row["euros"] for row in outputs["refunded"]}
    assert len(outputs["refunded"]) == len(_recipe("refund_approvals").TICKETS)
    assert euros == {"o1": 30.0, "o2": 140.0, "o3": 170.0, "o4": 0.0, "o5": 40.0, "o6": 0.0}
    assert outputs["errors"] == []


def _gives_each_ticket_to_its_team(outputs: Outputs) -> None:
    teams = {row["id"]: (row["team"], row["urgent"], row["tokens"]) for row in outputs["triaged"]}
    assert len(outputs["triaged"]) == len(teams)
    assert teams == {
        1: ("billing", True, 25),
        2: ("shipping", False, 25),
        3: ("support", False, 25),
        4: ("shipping", True, 25),
        5: ("billing", False, 25),
    }
    assert outputs["errors"] == []


def _publishes_once_what_was_approved(outputs: Outputs) -> None:
    answers = {row["question"]: row["answer"] for row in outputs["answered"]}
    assert len(outputs["answered"]) == len(answers)
    published = [answers.pop(question) for question in ("How warm is tea?", "How large are cups?")]
    assert all(answer.startswith("published as ") for answer in published)
    assert len(set(published)) == 2
    assert answers == {"How warm is coffee?": "refused: we sell tea", "Where is silver?": "Nothing."}
    assert outputs["errors"] == []


PROMISES: dict[str, Callable[[Outputs], None]] = {
    "sensor_averages": _averages_the_readings_of_each_window,
    "click_sessions": _divides_the_clicks_into_sessions,
    "rolling_means": _smooths_the_readings_of_each_hour,
    "model_per_key": _reports_the_readings_that_no_model_expects,
    "price_changes": _compares_each_price_with_earlier_ones,
    "trending_tags": _finds_the_three_tags_of_the_last_ten_minutes,
    "user_activity": _reports_the_days_of_each_user,
    "word_count": _counts_every_word,
    "access_log": _counts_the_failed_requests_of_each_page,
    "deduplicate": _passes_each_payment_on_once,
    "enrich": _prices_and_places_each_order_once,
    "user_profiles": _has_the_language_of_the_user_of_each_click,
    "model_batches": _scores_the_readings_of_known_sensors,
    "refund_approvals": _refunds_each_order_once_and_large_ones_with_an_approval,
    "classify_tickets": _gives_each_ticket_to_its_team,
    "research_agent": _publishes_once_what_was_approved,
    "async_calls": _has_the_price_of_each_product_in_order,
    "click_counts": _counts_every_click,
    "sensor_alerts": _raises_each_alert_at_the_third_reading,
    "reminders": _reminds_of_the_carts_without_an_order,
    "rate_limit": _admits_five_requests_at_once,
    "sample": _counts_what_it_has_sampled,
    "balances": _has_the_balance_of_each_account,
    "delta_purchases": _appends_each_purchase_once,
    "bad_records": _sets_damaged_lines_aside,
    "customer_totals": _sums_up_the_purchases_of_each_customer,
    "shipped_orders": _has_each_order_with_its_shipment_in_time,
    "exchange_rates": _converts_each_payment_at_its_rate,
    "fraud_rules": _checks_each_payment_by_some_rules,
    "rules_as_of": _checks_each_payment_by_the_rule_of_its_time,
    "late_report": _reports_exactly_the_late_readings,
}


def _shop(request: Any) -> Any:
    """Answers as examples/shop_server.py and examples/model_server.py do."""
    if request.url.endswith("/chat/completions"):
        return _recipe("model_server").answer(json.loads(request.body))
    if request.url.endswith("/articles"):
        return {"number": dict(request.headers)["idempotency-key"]}
    if request.method == "POST":
        return {"receipt": dict(request.headers)["idempotency-key"]}
    product = request.url.rpartition("/")[2]
    if "/profiles/" in request.url:
        languages = {"ann": "en", "bob": "de", "eve": "fr"}
        return {"language": languages[product]} if product in languages else 404
    return {"product": product, "price": 10.0 * len(product)}


def test_every_recipe_has_a_test() -> None:
    files = {file.stem for file in EXAMPLES.glob("*.py")}
    assert files == {*PROMISES, *WITH_OTHER_INPUT, *WITH_OTHER_TESTS}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISES)
def test_a_recipe_keeps_its_promise_although_its_processes_die(name: str) -> None:
    report = crash_test(_recipe(name).job, seeds=SEEDS, check=PROMISES[name], http=_shop, compare=False)
    assert report.injected


def test_the_batches_recipe_keeps_the_frequent_words() -> None:
    counts = [{"word": f"w{number}" * (number + 1), "count": number} for number in range(10)]

    def check(outputs: Outputs) -> None:
        expected = [{**row, "length": len(str(row["word"]))} for row in counts if int(str(row["count"])) >= 3]
        assert sorted(outputs.rows, key=str) == sorted(expected, key=str)

    crash_test(_recipe("arrow_batches").job, counts, SEEDS, check)


def test_the_syslog_recipe_keeps_each_datagram() -> None:
    events = [f"event {number % 12}" for number in range(20)]

    def check(outputs: Outputs) -> None:
        assert sorted(outputs.rows) == sorted(events)

    crash_test(_recipe("syslog_udp").job, events, SEEDS, check)


@pytest.mark.slow
def test_the_outbox_source_reads_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = _recipe("outbox_source")
    recipe.fill("outbox.db", 100)

    def check(outputs: Outputs) -> None:
        assert sorted(outputs.rows) == list(range(100))

    crash_test(recipe.job, seeds=SEEDS, check=check)


def test_an_outbox_source_that_follows_reads_rows_that_are_inserted_later(tmp_path: Path) -> None:
    recipe = _recipe("outbox_source")
    path = str(tmp_path / "outbox.db")
    recipe.fill(path, 3)
    with closing(recipe.Outbox(path, follow=True).reader()) as reader:
        reader.open(b"0/1", None)
        assert reader.read(2) == [{"order": 0}, {"order": 1}]
        mark = reader.mark()
        assert (reader.read(2), reader.read(2)) == ([{"order": 2}], [])
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO outbox (payload) VALUES ('{}')")
        assert reader.read(2) == [{}]
        reader.close()
        reader.open(b"0/1", mark)
        assert reader.read(5) == [{"order": 2}, {}]


@pytest.mark.slow
def test_the_archive_has_each_row_once_and_withdraws_later_checkpoints(tmp_path: Path) -> None:
    recipe = _recipe("gzip_sink")
    folders: list[Path] = []

    def make_job() -> Job:
        folders.append(tmp_path / str(len(folders)))
        job = Job("archived")
        job.source(values(range(40)), name="numbers").rebalance().sink(recipe.Archive(str(folders[-1])))
        return job

    def check(outputs: Outputs) -> None:
        archived = [gzip.decompress(file.read_bytes()) for file in folders[-1].glob("*.gz")]
        assert sorted(int(line) for content in archived for line in content.split()) == list(range(40))

    crash_test(make_job, seeds=SEEDS, check=check)
    folder = next(each for each in folders if len(list(each.glob("*.gz"))) > 1)
    checkpoints = sorted({int(file.name[:8]) for file in folder.glob("*.gz")})
    assert recipe.Archive(str(folder)).roll_back("job", checkpoints[0]) == checkpoints[1:]
    assert {int(file.name[:8]) for file in folder.glob("*.gz")} == set(checkpoints[:1])
