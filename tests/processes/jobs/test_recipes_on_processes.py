"""Recipes of examples/ whose output lies outside the job, run as their docstrings say, on child processes."""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from clonos import files
from tests.processes.harness.running_program import ENVIRONMENT, run_job, run_program
from tests.speed import scaled
from tests.tidy.source import ROOT
from tests.unit.connectors.web.feed_server import Feeds
from tests.unit.connectors.web.polled_server import pages
from tests.unit.connectors.web.receiving_server import receiver

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]  # deltalake keeps those of its runtime

EXAMPLES = ROOT / "examples"
ICEBERG_NOON = 200


def test_the_batches_recipe_reads_what_the_word_count_has_committed(tmp_path: Path) -> None:
    run_job(tmp_path, EXAMPLES / "word_count.py")
    counted: Counter[str] = Counter()
    rows: list[Any] = list(files.read_committed(tmp_path / "out/word_count"))
    for row in rows:
        counted[row["word"]] += row["count"]
    assert (counted["to"], counted["jugs"]) == (6, 1)
    run_job(tmp_path, EXAMPLES / "arrow_batches.py")
    frequent = [(row["word"], row["count"]) for row in rows if row["count"] >= 3]
    chosen: list[Any] = list(files.read_committed(tmp_path / "out/frequent_words"))
    assert sorted((row["word"], row["count"]) for row in chosen) == sorted(frequent)
    assert all(row["length"] == len(row["word"]) for row in chosen)


def test_the_expressions_recipe_makes_its_input_and_prices_it(tmp_path: Path) -> None:
    run_program(tmp_path, str(EXAMPLES / "columns_bids.py"))
    rows: list[Any] = list(files.read_committed(tmp_path / "out/dear_bids"))
    expected = [(number % 40, "top" if number >= 900 else "dear") for number in range(501, 1000, 3)]
    assert sorted((row["auction"], row["kind"]) for row in rows) == sorted(expected)
    assert {row["item"] for row in rows} == {"abc"}


def test_the_purchases_recipe_appends_them_to_its_table(tmp_path: Path) -> None:
    run_job(tmp_path, EXAMPLES / "delta_purchases.py")
    rows = DeltaTable(tmp_path / "out/purchases").to_pyarrow_table().to_pylist()
    bought = [json.loads(line) for line in (EXAMPLES / "data/purchases.jsonl").read_text("utf-8").splitlines()]
    expected = sorted((row["customer"], row["item"], row["cents"] / 100) for row in bought)
    assert sorted((row["customer"], row["item"], row["euros"]) for row in rows) == expected
    assert (tmp_path / "out/purchases/customer=ann").is_dir()


def test_the_iceberg_recipe_counts_each_purchase_of_the_snapshot_and_then_of_the_appends_once(tmp_path: Path) -> None:
    run_program(tmp_path, str(EXAMPLES / "iceberg_purchases.py"))
    purchases = [json.loads(line) for line in (EXAMPLES / "data/purchases.jsonl").read_text("utf-8").splitlines()]
    rows: list[Any] = list(files.read_committed(tmp_path / "out/spent"))
    for customer in {bought["customer"] for bought in purchases}:
        spent = {row["purchases"]: row["cents"] for row in rows if row["customer"] == customer}
        bought = [each for each in purchases if each["customer"] == customer]
        assert sorted(spent) == list(range(1, len(bought) + 1))
        morning = [each["cents"] for each in bought if each["number"] < ICEBERG_NOON]
        assert spent[len(morning)] == sum(morning)
        assert spent[len(bought)] == sum(each["cents"] for each in bought)
    assert len(rows) == len(purchases)


def test_the_pages_recipe_makes_a_page_of_each_text(tmp_path: Path) -> None:
    run_job(tmp_path, EXAMPLES / "pages.py")
    texts = sorted((EXAMPLES / "data/texts").iterdir())
    pages = sorted((tmp_path / "out/pages").iterdir())
    assert [page.name for page in pages] == [f"{text.stem}.html" for text in texts]
    for page, text in zip(pages, texts, strict=True):
        assert (
            html.unescape(page.read_text("utf-8"))
            == f"<title>{text.stem}</title>\n<pre>{text.read_text('utf-8')}</pre>\n"
        )


def test_the_log_recipe_fills_its_three_outputs(tmp_path: Path) -> None:
    run_job(tmp_path, EXAMPLES / "access_log.py")
    failed: list[Any] = list(files.read_committed(tmp_path / "out/failed"))
    unparsable: list[Any] = list(files.read_committed(tmp_path / "out/unparsable"))
    assert all("handshake" in error["record"] for error in unparsable)
    assert len(unparsable) == 2
    with closing(sqlite3.connect(tmp_path / "access_log.db")) as database:
        pages = dict(database.execute("SELECT page, failures FROM pages").fetchall())
    assert pages == Counter(row["page"] for row in failed)


def test_the_archive_has_each_row_in_one_compressed_file(tmp_path: Path) -> None:
    run_job(tmp_path, EXAMPLES / "gzip_sink.py")
    archive = sorted((tmp_path / "out/archive").glob("*.jsonl.gz"))
    lines = [line for file in archive for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert sorted(map(int, lines)) == list(range(1_000))
    assert not list((tmp_path / "out/archive/.staged").iterdir())


def test_a_resumed_job_completes_what_a_stopped_job_left(tmp_path: Path) -> None:
    output, _ = run_program(tmp_path, str(EXAMPLES / "resume.py"))
    stopped, missing, finished, complete = output.splitlines()
    assert stopped.startswith("resume was stopped")
    assert missing == "True that numbers are missing"
    assert finished.startswith("resume has finished")
    assert complete == "True that all numbers are there, each once"


def test_a_job_that_scales_itself_gets_more_tasks_under_load_and_fewer_afterwards(tmp_path: Path) -> None:
    output, _ = run_program(tmp_path, str(EXAMPLES / "self_scaling.py"))
    *decisions, last = output.splitlines()
    changed = [line.partition(": ")[2] for line in decisions if "; changed in " in line]
    widths = [tuple(map(int, re.findall(r"\d+", line.partition(":")[0].replace("task", "")))) for line in changed]
    assert widths[0][0] == 1
    assert widths[0][1] > 1
    assert widths[-1][1] < widths[-1][0]
    orders, labels = map(int, re.findall(r"\d+", last))
    assert labels == orders > 0
    assert last.endswith("each once: True")


def test_the_crash_test_of_the_examples_passes(tmp_path: Path) -> None:
    output, _ = run_program(
        tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / "test_rate_limit.py")
    )
    assert "1 passed" in output


@contextmanager
def _started(folder: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Starts Python in a folder, and ends it."""
    environment = os.environ | ENVIRONMENT | variables
    with subprocess.Popen([sys.executable, *arguments], cwd=folder, env=environment, text=True) as started:
        try:
            yield started
        finally:
            started.terminate()


def _free_port() -> int:
    with socket.create_server(("localhost", 0)) as server:
        return int(server.getsockname()[1])


def _post(port: int, name: str, body: bytes) -> int:
    """Posts an event as soon as somebody listens; returns the status of the reply."""
    headers = {"Idempotency-Key": name}
    request = urllib.request.Request(f"http://localhost:{port}/payments", body, headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=scaled(20)) as reply:
                return int(reply.status)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise


def test_a_webhook_is_answered_when_it_is_safe_and_counts_once(tmp_path: Path) -> None:
    port = _free_port()
    recipe, options = str(EXAMPLES / "webhooks.py"), ("--slots", "process")
    body = b'{"customer": "ann", "amount": 30}'
    with _started(tmp_path, "-m", "clonos.cli", "run", recipe, *options, WEBHOOK_PORT=str(port)) as job:
        assert [_post(port, name, body) for name in ("e1", "e2", "e1")] == [200, 200, 200]
        assert _post(port, "e3", b"ann paid") == 200
        job.terminate()  # the first signal stops the job with a last checkpoint
        assert job.wait(scaled(30)) == 0
    rows: list[Any] = list(files.read_committed(tmp_path / "out/webhooks"))
    assert [row["paid"] for row in rows] == [30, 60]
    [refused] = list(files.read_committed(tmp_path / "out/webhook_errors"))
    assert "json() cannot decode" in refused["error"]


def test_the_poll_recipe_adds_up_the_orders_of_an_endpoint(tmp_path: Path) -> None:
    orders = [{"shop": "bern", "amount": amount} for amount in (1, 2, 3)]
    with pages(orders) as server:
        options = ("--slots", "process")
        recipe = str(EXAMPLES / "http_poll.py")
        with _started(tmp_path, "-m", "clonos.cli", "run", recipe, *options, ORDERS_URL=server.url) as job:
            rows: list[Any] = []
            while len(rows) < 3:
                server.wait_for(len(server.asked) + 1)  # it asks each second
                assert job.poll() is None
                rows = list(files.read_committed(tmp_path / "out/http_poll"))
            job.terminate()
            assert job.wait(scaled(30)) == 0
    assert [row["sold"] for row in rows] == [1, 3, 6]


def test_the_websocket_recipe_adds_up_the_trades_of_a_server(tmp_path: Path) -> None:
    with Feeds() as server:
        server.add([{"number": number, "paper": "abc", "quantity": number} for number in (1, 2)], "trades")
        recipe, options = str(EXAMPLES / "websocket_trades.py"), ("--slots", "process")
        with _started(tmp_path, "-m", "clonos.cli", "run", recipe, *options, TRADES_URL=server.url("trades")) as job:
            server.wait_for_greetings(1)
            server.cut()
            server.wait_for_greetings(2)
            server.add([{"number": 3, "paper": "abc", "quantity": 3}], "trades")
            rows: list[Any] = []
            while len(rows) < 3:
                assert job.poll() is None
                server.wait(0.05)
                rows = list(files.read_committed(tmp_path / "out/websocket_trades"))
            job.terminate()
            assert job.wait(scaled(30)) == 0
    assert [row["traded"] for row in rows] == [1, 3, 6]
    assert server.greeted[0] == {"subscribe": "trades", "after": 0}


def test_the_post_recipe_sends_each_large_order_and_sets_aside_what_is_refused(tmp_path: Path) -> None:
    with receiver() as server:
        server.refused = (b"milk",)
        command = ("-m", "clonos.cli", "run", str(EXAMPLES / "http_post.py"), "--slots", "process")
        run_program(tmp_path, *command, SHOP_URL=server.url)
    sent = [one.value for one in server.accepted]
    lines = (EXAMPLES / "data" / "orders.jsonl").read_text("utf-8").splitlines()
    large = [order for order in map(json.loads, lines) if order["quantity"] >= 3]
    assert sent == [order for order in large if order["product"] != "milk"]
    [letters] = (tmp_path / "out" / "refused_orders").iterdir()
    refused = [json.loads(line)["row"] for line in letters.read_text("utf-8").splitlines()]
    assert refused == [order for order in large if order["product"] == "milk"]
    assert refused
