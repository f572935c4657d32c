"""Confluent's wire format against a registry that follows its protocol."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from clonos import codecs, secrets
from clonos.connectors.codecs import SchemaRegistry, UndecodableBytes
from clonos.connectors.codecs.schema_registry import RegistryFailed
from clonos.io.http.http_client import close_shared_client
from tests.unit.codecs.registry_server import Registry, registry_server

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NEWER = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "item", "type": "string", "default": "pen"}]}
UNREADABLE = {**SCHEMA, "fields": [{"name": "number", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with registry_server() as running:
        yield running
    close_shared_client()


def codec(registry: Registry, schema: Any = None, reader: Any = None) -> codecs.Codec[bytes, Any]:
    return codecs.confluent_avro(registry.url, subject="orders-value" if schema else None, schema=schema, reader=reader)


def test_each_datum_names_its_schema_and_readers_ask_once(registry: Registry) -> None:
    data = codec(registry, SCHEMA).encode({"id": 7})
    assert data[:5] == b"\x00\x00\x00\x00\x01"
    reader = codec(registry)
    assert [reader.decode(data), reader.decode(data)] == [{"id": 7}, {"id": 7}]
    assert registry.requests == ["POST /subjects/orders-value/versions", "GET /schemas/ids/1"]
    assert cloudpickle.loads(cloudpickle.dumps(reader)).decode(data) == {"id": 7}


def test_readers_and_writers_evolve_apart(registry: Registry) -> None:
    old, new = codec(registry, SCHEMA).encode({"id": 7}), codec(registry, NEWER).encode({"id": 8, "item": "ink"})
    assert [codec(registry, reader=NEWER).decode(each) for each in (old, new)] == [
        {"id": 7, "item": "pen"},
        {"id": 8, "item": "ink"},
    ]
    assert codec(registry, reader=SCHEMA).decode(new) == {"id": 8}
    with pytest.raises(UndecodableBytes, match="number"):
        codec(registry, reader=UNREADABLE).decode(old)


def test_a_schema_that_the_registry_refuses_ends_with_its_reason(registry: Registry) -> None:
    codec(registry, SCHEMA).encode({"id": 7})
    with pytest.raises(RegistryFailed, match=r"answered 409 .*incompatible with an earlier schema"):
        codec(registry, UNREADABLE).encode({"number": 7})


def test_bytes_without_a_known_schema_are_about_the_record(registry: Registry) -> None:
    for data in (b"", b'{"id": 7}', b"\x00\x00\x00", b"\x00\x00\x00\x00\x09\x02"):
        with pytest.raises(UndecodableBytes):
            codec(registry).decode(data)


def test_a_registry_that_fails_for_a_moment_is_asked_again(registry: Registry) -> None:
    data = codec(registry, SCHEMA).encode({"id": 7})
    registry.failures = 2
    assert codec(registry).decode(data) == {"id": 7}


def test_a_registry_that_is_away_is_no_fault_of_the_record() -> None:
    with pytest.raises(RegistryFailed, match="reading schema 1"):
        codecs.confluent_avro(SchemaRegistry("http://127.0.0.1:9", retries_max=0)).decode(b"\x00\x00\x00\x00\x01\x02")
    close_shared_client()


def test_user_and_password_are_sent_and_shown_nowhere(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "s3cret")
    password = secrets.env("REGISTRY_PASSWORD")
    codec(registry, SCHEMA).encode({"id": 7})
    known = SchemaRegistry(registry.url, user="ada", password=password)
    assert json.loads(known.schema(1) or "") == SCHEMA
    assert registry.authorization == "Basic " + base64.b64encode(b"ada:s3cret").decode()
    registry.failures = 1
    known = SchemaRegistry(registry.url, user="ada", password=password, retries_max=0)
    with pytest.raises(RegistryFailed) as caught:
        known.schema(1)
    assert "s3cret" not in str(caught.value)
