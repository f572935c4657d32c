"""Sources whose records come from one producer keep their number of tasks, and say why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clonos import blackhole, mqtt, rabbitmq, sockets, web
from clonos.api.graph import JobGraph
from clonos.core.model.options import Options
from clonos.core.model.plan import refusals

SOURCES: dict[str, Callable[[], Any]] = {
    "rabbitmq.queue": lambda: rabbitmq.queue("orders", url="amqp://broker"),
    "mqtt.source": lambda: mqtt.source("orders", session="shop", url="mqtt://broker"),
    "web.receive": lambda: web.receive(8_000, "/orders"),
    "web.poll": lambda: web.poll("http://shop/orders", every="1s"),
    "web.websocket": lambda: web.websocket("ws://shop/orders"),
    "sockets.lines": lambda: sockets.lines("shop", 1),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_of_one_producer_refuses_other_widths_with_step_and_reason(source: str) -> None:
    graph = JobGraph("orders")
    graph.source(SOURCES[source](), name="read").sink(blackhole(), name="write")
    (reason,) = refusals(graph.compile(Options()).plan, {"read": 2})
    assert reason == (
        '"read" keeps its number of tasks, 1: read cannot be divided, because its records come from a producer that'
        " one task is connected to"
    )
