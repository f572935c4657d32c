"""Runs with a password for Kafka and a schema registry write it nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.connectors.kafka.producing import committed, produce
from tests.connectors.pipeline.rated_orders import order_messages
from tests.connectors.secret_runs import WRONG, run_with_secret
from tests.connectors.servers.kafka import PASSWORD, USER, KafkaServer
from tests.unit.codecs.registry_server import registry_server

pytestmark = pytest.mark.connectors

PROGRAM = """
REGISTRY = codecs.SchemaRegistry("{registry}", user="reader", password=PASSWORD)
PLACE = {{
    "servers": "{servers}",
    "options": {{
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "{user}",
        "sasl.password": PASSWORD,
    }},
}}
rows = job.source(kafka.source("{given}", decode=codecs.confluent_avro(REGISTRY), until="latest", **PLACE))
rows.sink(kafka.sink("{results}", **PLACE), name="now")
rows.sink(kafka.sink("{results}", mode="transactional", **PLACE), name="later")
"""


@pytest.mark.parametrize("password", [PASSWORD, WRONG])
def test_a_run_with_a_password_writes_it_nowhere(tmp_path: Path, broker: KafkaServer, password: str) -> None:
    name = "right" if password == PASSWORD else "wrong"
    given, results = broker.create_topic(f"guarded-{name}"), broker.create_topic(f"guarded-{name}-copies")
    places = {"servers": broker.sasl_servers, "user": USER, "given": given, "results": results}
    with registry_server() as registry:
        produce(broker, given, order_messages(registry, range(20)))
        run = run_with_secret(tmp_path, PROGRAM.format(registry=registry.url, **places), password)
    assert run.code == (0 if password == PASSWORD else 1), run.shown
    if password == PASSWORD:
        assert registry.authorization is not None
        numbers = sorted(json.loads(message.value())["n"] for message in committed(broker, results))
        assert numbers == sorted([*range(20), *range(20)])
    assert broker.sasl_servers in run.shown
