"""The examples of the documents, run as a reader would run them."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import Any

import fastavro
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from clonos.connectors import files
from tests.harnesses.iceberg_tables import catalog_in, opened, threads_ended
from tests.processes.harness.running_program import run_job, run_program
from tests.tidy.source import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.keeps_sockets]  # deltalake keeps those of its runtime

ENDED = "has finished, all its output is committed"


def _example(document: str, name: str, language: str = "python") -> str:
    """The block whose fence names this file."""
    found = re.search(
        rf"^```{language} {name}\n(.*?)^```", (ROOT / document).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"{document} has no example {name}"
    return found[1]


def _run_job(folder: Path, document: str, name: str, *options: str) -> tuple[str, str]:
    (folder / name).write_text(_example(document, name), "utf-8")
    return run_job(folder, name, *options)


def test_the_readme_example_counts_the_accepted_words(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text((ROOT / "LICENSE").read_text("utf-8"), "utf-8")
    output, reported = _run_job(tmp_path, "README.md", "wordcount.py")
    counts = [re.fullmatch(r"([ \d]{3}) (\S+)", line) for line in output.splitlines()]
    assert "the" in {count[2] for count in counts if count is not None}
    assert all(count is not None and int(count[1]) >= 20 for count in counts)
    assert f"wordcount {ENDED}" in reported


def test_the_first_job_of_the_quick_start_counts_the_visitors_and_gives_each_a_drink(tmp_path: Path) -> None:
    (tmp_path / "visits.txt").write_text(_example("docs/quick-start.md", "visits.txt", "text"), "utf-8")
    output, _ = _run_job(tmp_path, "docs/quick-start.md", "job.py")
    assert sorted(output.splitlines()) == ['["Berlin",1]', '["Berlin",2]', '["Paris",1]']
    drinks = [
        json.loads(line)
        for file in (tmp_path / "drinks").glob("*")
        for line in file.read_text("utf-8").split("\n")[:-1]
    ]
    assert sorted(row["name"] for row in drinks) == ["ann", "bob", "eve"]
    assert {row["drink"] for row in drinks} <= {"tea", "coffee"}


def test_local_times_without_an_offset_count_in_the_hours_of_their_zone(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("page,at\na,2026-07-01 01:30:00\nb,2026-10-25 03:30:00\n", "utf-8")
    output, _ = _run_job(tmp_path, "docs/event-time.md", "visits_per_hour.py")
    starts = {row["key"]: row["start"] for row in map(json.loads, output.splitlines())}
    assert starts == {"a": "2026-06-30T23:00:00Z", "b": "2026-10-25T02:00:00Z"}


@pytest.mark.parametrize(
    ("document", "name"),
    [
        ("docs/aggregates.md", "own_aggregates.py"),
        ("docs/connectors.md", "flush.py"),
        ("docs/event-time.md", "silent_sensors.py"),
        ("docs/event-time.md", "late_test.py"),
        ("docs/transformations.md", "first.py"),
        ("docs/transformations.md", "fold.py"),
        ("docs/transformations.md", "leaders.py"),
        ("docs/transformations.md", "leaders_of_hours.py"),
    ],
)
def test_an_example_gives_the_rows_on_its_page(tmp_path: Path, document: str, name: str) -> None:
    output, reported = _run_job(tmp_path, document, name)
    shown = (ROOT / document).read_text("utf-8").partition(f"$ clonos run {name}\n")[2].partition("```")[0]
    assert output.splitlines() == shown.splitlines()
    assert ENDED in reported


def test_the_csv_recipe_reads_the_cells_without_the_headers(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.csv").write_text('customer,item,cents\nann,"tea, green",1200\nbob,milk,90\n', "utf-8")
    (tmp_path / "orders" / "2.csv").write_text("customer,item,cents\r\neve,jam,1000\r\n", "utf-8")
    output, _ = _run_job(tmp_path, "docs/connectors.md", "read_csv.py")
    assert sorted(output.splitlines()) == [
        '{"customer":"ann","cents":1200}',
        '{"customer":"eve","cents":1000}',
    ]


def test_the_page_of_files_appends_orders_to_a_delta_table_and_reads_and_follows_it(tmp_path: Path) -> None:
    rows = [{"id": number, "cents": 10 * number, "day": f"2026-01-0{number % 3 + 1}"} for number in range(30)]
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders/1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    _run_job(tmp_path, "docs/connectors/files.md", "delta_orders.py")
    found = DeltaTable(tmp_path / "lake/orders").to_pyarrow_table().to_pylist()
    assert sorted(found, key=lambda row: int(row["id"])) == rows
    _run_job(tmp_path, "docs/connectors/files.md", "delta_totals.py")
    totals = list(files.read_committed(tmp_path / "out"))
    assert sum(total["cents"] for _, total in totals) == sum(10 * number for number in range(30))
    rmtree(tmp_path / "out")
    rmtree(tmp_path / ".out.clonos")
    _run_job(tmp_path, "docs/connectors/files.md", "delta_follow.py")
    changes = list(files.read_committed(tmp_path / "out"))
    assert sorted(change["id"] for change in changes) == [row["id"] for row in rows]


def test_the_page_of_iceberg_appends_orders_to_a_table_and_reads_it(tmp_path: Path) -> None:
    rows = [{"id": number, "cents": 10 * number, "day": f"2026-01-0{number % 3 + 1}"} for number in range(30)]
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders/1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    _run_job(tmp_path, "docs/connectors/iceberg.md", "iceberg_orders.py")
    with threads_ended():
        found = opened(catalog_in(tmp_path)).scan().to_arrow().to_pylist()
    assert sorted(found, key=lambda row: int(row["id"])) == rows
    _run_job(tmp_path, "docs/connectors/iceberg.md", "iceberg_totals.py")
    totals = list(files.read_committed(tmp_path / "out"))
    assert sum(total["cents"] for _, total in totals) == sum(10 * number for number in range(30))
    rmtree(tmp_path / "out")
    rmtree(tmp_path / ".out.clonos")
    _run_job(tmp_path, "docs/connectors/iceberg.md", "iceberg_follow.py")
    added = list(files.read_committed(tmp_path / "out"))
    assert sorted(row["id"] for row in added) == [row["id"] for row in rows]


def test_the_page_of_files_turns_avro_into_parquet(tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}]  # an older schema than the reader's
    (tmp_path / "orders").mkdir()
    with (tmp_path / "orders/1.avro").open("wb") as file:
        schema = fastavro.parse_schema({"type": "record", "name": "Order", "fields": fields})
        fastavro.writer(file, schema, [{"id": number, "item": "pen"} for number in range(100)])
    _run_job(tmp_path, "docs/connectors/files.md", "avro_to_parquet.py")
    found = pyarrow.parquet.read_table(tmp_path / "plain").to_pylist()
    expected = [{"id": number, "item": "pen", "note": None} for number in range(100)]
    assert sorted(found, key=lambda row: int(row["id"])) == expected


def test_the_coins_of_the_quick_start_agree_though_a_process_is_killed(tmp_path: Path) -> None:
    (tmp_path / "coins.py").write_text(_example("docs/quick-start.md", "coins.py"), "utf-8")
    output, reported = run_program(tmp_path, "coins.py", CLONOS_METRICS="metrics.jsonl")
    killing, summary, counted, tossed = output.splitlines()
    assert killing == "killing numbers-toss/0"
    assert summary.startswith(f"coins {ENDED}")
    assert "1 recovery" in summary, reported
    assert counted.removeprefix("counted ") == tossed.removeprefix("tossed  ")
    assert sum(int(number) for number in re.findall(r"\d+", counted)) == 5_000
    _check_metrics(json.loads((tmp_path / "metrics.jsonl").read_text("utf-8").splitlines()[-1]))


def _check_metrics(line: dict[str, Any]) -> None:
    """The documented fields and counters are those of a line."""
    section = (ROOT / "docs" / "operations.md").read_text("utf-8").partition("## Metrics")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    # It has no limit, no event time, no immediate sink, no state in columns, no calls, and nothing to restore.
    absent = {"limit_reached", "late_records", "watermark_ns", "rows_written", "state_bytes", "restored_permille"}
    absent |= {"replayed_calls", "executed_calls"}
    assert set(documented) - absent == (line.keys() | line["totals"].keys()) - absent
    assert absent < set(documented)
    assert {"task", "incarnation", "phase"} < line["tasks"][0].keys() <= {"task", *documented, "incarnation"}


def test_the_quick_start_emits_its_totals_when_timers_fire(tmp_path: Path) -> None:
    output, _ = _run_job(tmp_path, "docs/quick-start.md", "totals.py")
    assert output == '["ann",42]\n["bob",50]\n'


def test_the_error_output_of_the_quick_start_receives_the_record_that_raised(tmp_path: Path) -> None:
    output, _ = _run_job(tmp_path, "docs/quick-start.md", "errors.py")
    assert sorted(output.splitlines()) == ["3", "6", "divide: 0: ZeroDivisionError: integer division or modulo by zero"]


@pytest.mark.parametrize(("library", "is_equal"), [("standard", False), ("clonos", True)])
def test_the_state_of_the_determinism_page_matches_its_output_with_causal_numbers_only(
    tmp_path: Path, library: str, is_equal: bool
) -> None:
    (tmp_path / "draws.py").write_text(_example("docs/determinism.md", "draws.py"), "utf-8")
    output, _ = run_program(tmp_path, "draws.py", library)
    sent, state = (int(line.rpartition(" ")[2]) for line in output.splitlines())
    assert (sent == state) is is_equal


def test_the_sink_of_ones_own_has_each_row_under_its_number(tmp_path: Path) -> None:
    _run_job(tmp_path, "docs/writing-a-sink.md", "own_sink.py")
    with closing(sqlite3.connect(tmp_path / "own.db")) as database:
        assert database.execute("SELECT number, value FROM rows ORDER BY number").fetchall() == [(0, "to"), (1, "be")]
