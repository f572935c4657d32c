"""Advice for sources and sinks that are something else: a path, a list, a frame, ``print``, a module."""

from __future__ import annotations

import inspect
import io
import os
from collections.abc import Iterable, Mapping
from types import ModuleType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from clonos.api.graph_errors import InvalidJob
from clonos.core.model.wrong_calls import name_of_call
from clonos.operators.aggregates.aggregate import Aggregation
from clonos.operators.connector_contract import ImmediateSink, PushSource, Source, TransactionalSink

FORMATS: Final = {
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "arrow"),
    ".avro": "avro",
}
"""Functions of ``files`` by the suffixes of files."""

COMPRESSED: Final = (".gz", ".bz2", ".xz", ".zst", ".lz4")

READERS: Final = {
    ("postgres", "postgresql"): 'postgres.query("{text}", "select ...")',
    ("kafka",): 'kafka.source("topic", servers="host:9092")',
    ("nats",): 'nats.source("stream", url="{text}")',
    ("amqp", "amqps"): 'rabbitmq.queue("queue", url="{text}")',
    ("mqtt", "mqtts"): 'mqtt.source("topic", session="name", url="{text}")',
    ("redis", "rediss"): 'redis.source("stream", url="{text}")',
    ("ws", "wss"): 'web.websocket("{text}")',
    ("http", "https"): 'web.poll("{text}", every="10s"), or files.csv("{text}") for a file',
}
WRITERS: Final = {
    ("postgres", "postgresql"): 'postgres.table("{text}", "table")',
    ("kafka",): 'kafka.sink("topic", servers="host:9092")',
    ("nats",): 'nats.sink("subject", url="{text}")',
    ("amqp", "amqps"): 'rabbitmq.exchange("exchange", url="{text}")',
    ("mqtt", "mqtts"): 'mqtt.sink("topic", url="{text}")',
    ("redis", "rediss"): 'redis.sink("stream", url="{text}")',
    ("http", "https"): 'web.post("{text}")',
}
"""Connectors by the schemes of addresses."""

METHODS: Final = {"source": ("reader", "connect"), "sink": ("writer", "immediate_writer")}
"""Methods that a source or a sink has, one of each."""

STREAM: Final = "It is a stream already: call its methods, such as map or sink; union(...) joins two."
ROWS: Final = (
    "Write values(frame.to_dict('records')) with pandas, values(frame.to_dicts()) with Polars,"
    " values(table.to_pylist()) with Arrow, frames.source(frame) with Spark."
)
COLLECT: Final = "Write rows = collect() and .sink(rows); rows.rows has the records when the job has ended."
CALL_EACH: Final = ".map(function, effects=True).sink(blackhole())"
DATABASES: Final = 'Write sqlite("path.db", "table"), postgres.table(...), or dbapi(...) with a function that connects.'


def how_to_read(given: Any) -> str:
    """Returns what to write in place of something that is not a source."""
    if isinstance(given, (TransactionalSink, ImmediateSink)):
        return "It is a sink: a stream ends with .sink(...). Give a source such as values([...])."
    if isinstance(given, (str, os.PathLike)):
        return _written(os.fspath(given), READERS)
    if hasattr(given, "_graph"):
        return STREAM
    if _is_frame(given):
        return ROWS
    if isinstance(given, Mapping):
        return "Write values([record]) for one record, or values(list(records.values()))."
    if isinstance(given, io.IOBase):
        return f"Write {_of_path(str(getattr(given, 'name', 'path')))}, which opens the file itself."
    return _of_callable(given, "source") or _of_values(given) or DEFAULT_SOURCE


def how_to_write(given: Any) -> str:
    """Returns what to write in place of something that is not a sink."""
    if given is print or (isinstance(given, io.TextIOBase) and str(getattr(given, "name", "")).startswith("<std")):
        return "Give stdout() instead."
    if isinstance(given, (Source, PushSource)):
        return "It is a source: job.source(...) reads it. Give a sink such as stdout() or files.jsonl('out/')."
    if isinstance(given, (str, os.PathLike)):
        return _written(os.fspath(given), WRITERS)
    if hasattr(given, "_graph"):
        return "A stream cannot be written into another one. union(...) joins two streams."
    if isinstance(given, (list, dict, set)) or _is_frame(given):
        return COLLECT
    if isinstance(given, Aggregation):
        return "It is an aggregate of clonos.agg. The sink that collects records is collect() of clonos."
    if hasattr(given, "cursor") and hasattr(given, "commit"):
        return DATABASES
    if isinstance(given, io.IOBase):
        return f"Write {_of_path(str(getattr(given, 'name', 'path')))}, which opens its files itself."
    return _of_callable(given, "sink") or DEFAULT_SINK


def check_streams(step: str, others: Iterable[Any]) -> None:
    """Checks that what a stream is joined with are streams.

    Raises: InvalidJob: one is something else, such as a list of streams or a source.
    """
    for other in others:
        if isinstance(other, (list, tuple)) and other and all(hasattr(each, "_graph") for each in other):
            raise InvalidJob(step, f"gets a {type(other).__name__} of streams", "Give each as an argument of its own.")
        if not hasattr(other, "_graph"):
            advice = "Give a stream: job.source(...) makes one of a source."
            raise InvalidJob(step, f"gets {other!r:.80}, which is not a stream", advice)


DEFAULT_SOURCE: Final = "A source has splits() and reader(), such as files.lines('texts/*.txt')."
DEFAULT_SINK: Final = (
    "A sink has prepare_output(), writer() and commit(), like files.jsonl('out/'), or immediate_writer()."
)


def _written(text: Any, connectors: Mapping[tuple[str, ...], str]) -> str:
    text = os.fsdecode(text)
    scheme, _, rest = text.partition("://")
    call = next((form for schemes, form in connectors.items() if rest and scheme.partition("+")[0] in schemes), "")
    return f"Write {call.format(text=text) if call else _of_path(text)}."


def _of_path(path: str) -> str:
    stem, suffix = os.path.splitext(path.lower())
    if suffix in COMPRESSED:
        suffix = os.path.splitext(stem)[1]
    return f'files.{FORMATS.get(suffix, "lines")}("{path}")'


def _is_frame(given: Any) -> bool:
    return any(hasattr(type(given), name) for name in ("__arrow_c_stream__", "iterrows", "to_arrow", "mapInPandas"))


def _gives(function: Any, end: str) -> bool:
    """Returns whether a function of a module of connectors may give a source, or a sink."""
    try:
        given = get_type_hints(function)["return"]
    except (NameError, TypeError, KeyError):  # a class that is loaded when it is needed
        return True
    classes = get_args(given) if isinstance(given, UnionType) else (given,)
    return any(hasattr(get_origin(each) or each, method) for each in classes for method in METHODS[end])


def _of_callable(given: Any, end: str) -> str:
    """Returns what to write in place of a function, a class or a module; "" for anything else."""
    if isinstance(given, ModuleType):
        name = given.__name__.rpartition(".")[2]
        names = [each for each in getattr(given, "__all__", ()) if _is_public(given, each)]
        calls = [f"{name}.{each}(...)" for each in names if _gives(getattr(given, each), end)]
        return f"It is a module: write {' or '.join(calls[:6])}." if calls else ""
    if not callable(given):
        return ""
    if inspect.isroutine(given) and str(given.__module__).startswith("clonos."):
        return f"It is not called: write {name_of_call(given)}(...)."
    if inspect.isclass(given):
        return f"It is a class: give an object of it, {given.__qualname__}(...)."
    name = getattr(given, "__name__", "function")
    if end == "sink":
        return f"A function that is called with each record is a step: write {CALL_EACH.replace('function', name)}."
    return f"Call it, and give what it returns: values({name}()) for a function that returns or yields records."


def _is_public(module: ModuleType, name: str) -> bool:
    return inspect.isfunction(getattr(module, name))


def _of_values(given: Any) -> str:
    return "Write values(records)." if isinstance(given, Iterable) else ""
