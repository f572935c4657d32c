"""``web.poll`` while its task, the driver and the server die: each record counts once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from clonos import web
from clonos.testing import Guarantee, check_source
from tests.unit.connectors.web.polled_server import RestartedPages

pytestmark = [pytest.mark.connectors, pytest.mark.timeout(240)]


@pytest.fixture
def server() -> Iterator[RestartedPages]:
    with RestartedPages() as running:
        yield running


def test_each_record_counts_once_although_tasks_and_the_server_die(server: RestartedPages) -> None:
    def make(place: str) -> Any:
        return web.poll(server.url(place), records="data.items", cursor="next", every="20ms")

    def write(place: str, numbers: Sequence[int]) -> None:
        server.add(place, numbers)

    report = check_source(make, write, int, trials=["kills"], outages={"server killed": server.restart})
    assert {each.guarantee for each in report.values()} == {Guarantee.EXACTLY_ONCE}, report
    assert all(each.injected for each in report.values()), report
