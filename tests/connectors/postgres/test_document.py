"""The programs of docs/connectors/postgres.md and the recipe for PostgreSQL, run as a reader would run them."""

from __future__ import annotations

import gc
import json
import runpy
from pathlib import Path

import pytest

from clonos import http
from clonos.connectors import postgres as pg
from tests.connectors.documents import write_programs
from tests.connectors.servers.postgres import PASSWORD, PostgresServer
from tests.harnesses.model_server import model_server
from tests.processes.harness.running_program import run_program
from tests.tidy.source import ROOT

pytestmark = pytest.mark.connectors


def test_the_totals_of_the_document_follow_the_orders(tmp_path: Path, replicated: PostgresServer) -> None:
    write_programs(tmp_path, "postgres", address=("127.0.0.1:5432", f"127.0.0.1:{replicated.port}"))
    run_program(tmp_path, "prepare.py", PGPASSWORD=PASSWORD)
    pg.changes(replicated.full_url, "orders", slot="totals").splits(1)  # so that the rows come after the slot
    run_program(tmp_path, "order.py", PGPASSWORD=PASSWORD)
    run_program(tmp_path, "-m", "clonos.cli", "run", "totals.py", "--slots", "process", PGPASSWORD=PASSWORD)
    assert replicated.psql("SELECT item, orders FROM totals ORDER BY item") == [("jam", "2"), ("tea", "3")]
    printed, _ = run_program(tmp_path, "-m", "clonos.cli", "run", "teas.py", "--slots", "process", PGPASSWORD=PASSWORD)
    assert sorted(json.loads(line)["id"] for line in printed.splitlines()) == [1, 3, 4]


def test_the_retrieval_recipe_answers_from_the_passages_that_are_near(
    tmp_path: Path, with_vectors: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", with_vectors.full_url)
    with model_server() as server:
        monkeypatch.setenv("MODEL_URL", server.url)
        program = (ROOT / "examples" / "retrieval.py").read_text("utf-8").replace("vector(384)", "vector(8)")
        (tmp_path / "retrieval.py").write_text(
            program.replace("__file__", repr(str(ROOT / "examples" / "retrieval.py"))), "utf-8"
        )
        recipe = runpy.run_path(str(tmp_path / "retrieval.py"))
        for name in ("index", "answers"):
            recipe[name].run(slots="thread")
    http.close()
    gc.collect()  # closes the connections of the searches
    asked = [each.body["messages"][0]["content"] for each in server.asked if "messages" in each.body]
    assert ["To be, or not to be" in content for content in asked] == [True, True]
    assert with_vectors.psql("SELECT place, vector_dims(embedding) FROM passages ORDER BY 1") == [
        *(("hamlet.txt 1", "8"), ("pangrams.txt 1", "8")),
    ]


def test_the_stock_recipe_follows_the_movements(tmp_path: Path, replicated: PostgresServer) -> None:
    replicated.run("CREATE TABLE movements (id serial PRIMARY KEY, item text, pieces int)")
    pg.changes(replicated.full_url, "movements", slot="stock").splits(1)
    replicated.run("INSERT INTO movements (item, pieces) VALUES ('tea', 5), ('jam', 2), ('tea', -1)")
    recipe = str(ROOT / "examples" / "postgres_stock.py")
    job = Path(recipe).read_text("utf-8").replace('checkpoint_every="1s"', 'checkpoint_every="1s", limit=3')
    (tmp_path / "stock.py").write_text(job, "utf-8")  # ends, where the recipe would go on
    command = ("-m", "clonos.cli", "run", "stock.py", "--slots", "process")
    run_program(tmp_path, *command, DATABASE_URL=replicated.full_url)
    assert replicated.psql("SELECT item, pieces FROM stock ORDER BY item") == [("jam", "2"), ("tea", "4")]
