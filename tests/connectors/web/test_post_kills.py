"""``web.post`` under load while its task dies and the server refuses: each row arrives, once by its key."""

from __future__ import annotations

from typing import Any

import pytest

from clonos import web
from clonos.io.http.http_client import close_shared_client
from clonos.testing import Guarantee, check_sink
from tests.unit.connectors.web.receiving_server import receiver

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]


def test_a_server_has_each_row_once_by_its_key_after_kills_of_the_task_and_refusals() -> None:
    with receiver() as server:

        def make(place: str) -> Any:
            return web.post(server.url, headers={"X-Place": place}, timeout="2s")

        def read(place: str) -> list[Any]:
            accepted = [one for one in server.accepted if one.headers["x-place"] == place]
            return list({one.key: one.value for one in accepted}.values())

        def refuse() -> None:
            server.answers.extend([(503, {"retry-after": "0"})] * 20)

        report = check_sink(make, read, trials=["kills"], outages={"refusals": refuse}, worlds=())
    close_shared_client()
    assert all(evidence.rows and evidence.injected for evidence in report.values())
    assert report.weakest is Guarantee.EXACTLY_ONCE, report
