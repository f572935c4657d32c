"""``postgres.nearest`` on a real server: the nearest rows, once for each call of the log."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from clonos import Job, collect, values
from clonos.connectors import postgres as pg
from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.attempts import ATTEMPTS_MAX
from clonos.core.ports.recorder import running
from tests.connectors.servers.postgres import PostgresServer
from tests.harnesses.fake_recorder import FakeRecorder

pytestmark = pytest.mark.connectors

SEARCHES = ATTEMPTS_MAX + 1
"""Connections, one more than a search makes attempts."""


@pytest.fixture
def passages(with_vectors: PostgresServer) -> PostgresServer:
    """A server with three vectors in a plane."""
    with_vectors.run("CREATE TABLE passages (id int, language text, price numeric, embedding vector(2))")
    with_vectors.run(
        "INSERT INTO passages VALUES (1, 'en', 1.50, '[1,0]'), (2, 'de', NULL, '[0,2]'), (3, 'en', 0, '[4,4]')"
    )
    return with_vectors


def searching(server: PostgresServer, **options: Any) -> Any:
    return pg.nearest(server.full_url, "passages", "embedding", columns=["id"], **options)


def ids_of(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


def test_the_rows_with_the_nearest_vectors_come_with_their_distance(passages: PostgresServer) -> None:
    assert searching(passages, metric="l2")([1, 0]) == [
        *({"id": 1, "distance": 0.0}, {"id": 2, "distance": 5**0.5}, {"id": 3, "distance": 5.0}),
    ]
    assert searching(passages, metric="inner", k=1)([1.0, 0.0]) == [{"id": 3, "distance": -4.0}]
    assert ids_of(searching(passages)((0.0, 0.1))) == [2, 3, 1]
    whole = pg.nearest(passages.full_url, "passages", "embedding", columns=["language", "price", "embedding"], k=1)
    assert repr(whole([1, 0])) == repr(
        [{"language": "en", "price": Decimal("1.50"), "embedding": [1.0, 0.0], "distance": 0.0}]
    )


def test_a_row_without_a_vector_is_no_neighbour(passages: PostgresServer) -> None:
    passages.run("INSERT INTO passages VALUES (4, 'en', 0, NULL)")
    assert ids_of(searching(passages, k=4, where="language = 'en' OR id < 4")([1, 0])) == [1, 3, 2]


def test_a_condition_has_parameters(passages: PostgresServer) -> None:
    search = searching(passages, where="language = %(language)s AND id <> 10 %% 7")
    assert ids_of(search([0.0, 1.0], language="en")) == [1]
    assert ids_of(search([0.0, 1.0], language="de")) == [2]


def test_a_replay_returns_the_recorded_rows_and_asks_nothing(passages: PostgresServer) -> None:
    search, recorder = searching(passages, k=1), FakeRecorder()
    with running(recorder):
        first = [search([1.0, 0.0]), search([0.0, 1.0])]
    assert list(map(ids_of, first)) == [[1], [2]]
    passages.run("DELETE FROM passages")
    with running(recorder.successor()):
        assert [search([1.0, 0.0]), search([0.0, 1.0])] == first
    assert search([1.0, 0.0]) == []


def test_searches_side_by_side_go_on_after_all_their_connections_have_ended(passages: PostgresServer) -> None:
    waiting = "pg_advisory_xact_lock_shared(7)::text = ''"
    search = cloudpickle.loads(cloudpickle.dumps(searching(passages, k=1, where=waiting)))
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'clonos'"
    with ThreadPoolExecutor(SEARCHES) as threads, passages.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(7)")
        found = [threads.submit(search, [1, 0]) for _ in range(SEARCHES)]
        while passages.run(f"{sessions} AND wait_event = 'advisory'") != [(SEARCHES,)]:
            assert not any(each.done() for each in found)
        holder.execute("SELECT pg_advisory_unlock(7)")
        assert [ids_of(each.result()) for each in found] == [[1]] * SEARCHES
    assert passages.run(sessions) == [(SEARCHES,)]
    passages.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'clonos'")
    assert ids_of(search([1, 0])) == [1]
    while passages.run(sessions) != [(1,)]:  # a session ends after its signal
        pass


def test_a_search_by_text_is_the_lookup_of_enrich(passages: PostgresServer, tmp_path: Path) -> None:
    search, vectors = searching(passages, k=1), {"east": [1.0, 0.0], "north": [0.0, 1.0]}
    job = Job("questions", slots="thread", store=tmp_path / "store")
    asked = job.source(values([{"text": "east"}, {"text": "north"}]))
    collected: Any = collect()
    asked.enrich(lambda text: search(vectors[text]), on="text", into="found", cache=100).sink(collected)
    job.run()
    gc.collect()  # closes the connections of the search
    assert [(row["text"], ids_of(row["found"])) for row in collected.rows] == [("east", [1]), ("north", [2])]


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        ([float("nan"), 1.0], "its number at index 0 is nan"),
        ("up", "does not hold"),
        ([], "it has 0 numbers"),
    ],
)
def test_a_malformed_vector_is_refused_before_the_call(vector: Any, reason: str) -> None:
    search, recorder = pg.nearest("host=nowhere", "passages", "embedding", columns=["id"]), FakeRecorder()
    with running(recorder), pytest.raises(pg.VectorUnusable, match=reason):
        search(vector)


def test_a_question_that_the_table_cannot_answer_names_the_table_and_the_reason(passages: PostgresServer) -> None:
    recorder = FakeRecorder()
    for life in (recorder, recorder.successor()):
        with running(life), pytest.raises(pg.NearestFailed, match="different vector dimensions 2 and 3"):
            searching(passages)([1.0, 2.0, 3.0])
    with pytest.raises(pg.NearestFailed, match=r'postgres\.nearest of nowhere in .* relation "nowhere" does not exist'):
        pg.nearest(passages.full_url, "nowhere", "embedding", columns=["id"])([1.0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"k": 0}, "k is 0. Give a number of rows"),
        ({"metric": "near"}, "metric is 'near'. Give one of cosine, l2, inner"),
        ({"columns": "id"}, "columns is 'id'. Give a list of names"),
        ({"columns": ["distance"]}, "the answer has a field 'distance' of its own"),
        ({"columns": [""]}, "is not a valid SQL identifier"),
    ],
)
def test_arguments_that_cannot_work_are_refused(options: Any, reason: str) -> None:
    with pytest.raises(InvalidConnector, match=reason):
        pg.nearest("host=nowhere", "passages", "embedding", **{"columns": ["id"], **options})
