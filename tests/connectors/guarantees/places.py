"""Addresses behind links, and files as others write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from clonos.testing import NetworkLink
from tests.connectors.servers.mosquitto import PASSWORD as MQTT_PASSWORD
from tests.connectors.servers.mosquitto import USER as MQTT_USER
from tests.connectors.servers.nats import PASSWORD as NATS_PASSWORD
from tests.connectors.servers.nats import USER as NATS_USER
from tests.connectors.servers.postgres import DATABASE, PASSWORD, USER
from tests.connectors.servers.rabbitmq import PASSWORD as RABBIT_PASSWORD
from tests.connectors.servers.rabbitmq import USER as RABBIT_USER
from tests.connectors.servers.redis import PASSWORD as REDIS_PASSWORD
from tests.connectors.servers.redis import USER as REDIS_USER

WORLDS = range(20)
"""Seeds of simulated worlds."""


def write_json_lines(table: pyarrow.Table, path: str) -> None:
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()), "ascii")


WRITERS: dict[str, Callable[[pyarrow.Table, str], object]] = {
    "jsonl": write_json_lines,
    "csv": pyarrow.csv.write_csv,
    "parquet": pyarrow.parquet.write_table,
    "arrow": partial(pyarrow.feather.write_feather, compression="uncompressed"),
}
"""Functions that write a table into a file of a kind, as others write it."""


def postgres_url(link: NetworkLink) -> str:
    return f"postgresql://{USER}:{PASSWORD}@{link.address}/{DATABASE}"


def nats_url(link: NetworkLink) -> str:
    return f"nats://{NATS_USER}:{NATS_PASSWORD}@{link.address}"


def s3_url(link: NetworkLink, key: str) -> str:
    return f"s3://bucket/{key}?endpoint=http://{link.address}"


def rabbit_url(link: NetworkLink) -> str:
    return f"amqp://{RABBIT_USER}:{RABBIT_PASSWORD}@{link.address}/%2F"


def redis_url(link: NetworkLink) -> str:
    return f"redis://{REDIS_USER}:{REDIS_PASSWORD}@{link.address}"


def mqtt_url(link: NetworkLink) -> str:
    return f"mqtt://{MQTT_USER}:{MQTT_PASSWORD}@{link.address}"
