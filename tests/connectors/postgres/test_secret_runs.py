"""Runs with a password for PostgreSQL write it nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.connectors.secret_runs import WRONG, run_with_secret
from tests.connectors.servers.postgres import PASSWORD, USER, PostgresServer

pytestmark = pytest.mark.connectors

PROGRAM = """
rows = job.source(postgres.query("{url}", "SELECT * FROM words", key="word"{password}))
rows.sink(postgres.table("{url}", "copies", {{"word": "text"}}{password}))
"""


@pytest.mark.parametrize(("password", "is_secret"), [(PASSWORD, True), (PASSWORD, False), (WRONG, True)])
def test_a_run_with_a_password_writes_it_nowhere(
    tmp_path: Path, postgres: PostgresServer, password: str, is_secret: bool
) -> None:
    postgres.run("CREATE TABLE words (word text)")
    postgres.run("INSERT INTO words VALUES ('to'), ('be')")
    url = postgres.url if is_secret else postgres.full_url
    program = PROGRAM.format(url=url, password=", password=PASSWORD" if is_secret else "")
    run = run_with_secret(tmp_path, program, password)
    assert run.code == (0 if password == PASSWORD else 1), run.shown
    if password == WRONG:
        assert f'password authentication failed for user "{USER}"' in run.shown
    else:
        assert postgres.psql("SELECT word FROM copies ORDER BY word") == [("be",), ("to",)]
    assert postgres.place in run.shown
