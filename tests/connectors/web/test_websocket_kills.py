"""``web.websocket`` while its task, the server and the connection die."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clonos import web
from clonos.testing import Guarantee, check_source
from tests.unit.connectors.web.feed_server import Feeds, after

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]


@pytest.fixture
def server() -> Iterator[Feeds]:
    with Feeds() as running:
        yield running


def test_each_message_counts_once_although_tasks_the_server_and_connections_die(server: Feeds) -> None:
    def make(place: str) -> Any:
        return web.websocket(server.url(place), send=after, cursor="at")

    outages = {"server killed": server.restart, "connection cut": server.cut}
    report = check_source(make, server.number, lambda message: int(message["n"]), trials=["kills"], outages=outages)
    assert {each.guarantee for each in report.values()} == {Guarantee.EXACTLY_ONCE}, report
    assert all(each.injected for each in report.values()), report


def test_messages_that_a_server_sends_again_from_the_beginning_count_once_by_their_identity(server: Feeds) -> None:
    def make(place: str) -> Any:
        return web.websocket(server.url(place), send={"after": 0}, identity="n")

    outages = {"connection cut": server.cut}
    report = check_source(make, server.number, lambda message: int(message["n"]), trials=["kills"], outages=outages)
    assert {each.guarantee for each in report.values()} == {Guarantee.EXACTLY_ONCE}, report
    assert all(each.injected for each in report.values()), report
